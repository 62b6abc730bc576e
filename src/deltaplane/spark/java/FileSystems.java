package deltaplane;

import java.lang.reflect.Field;
import java.net.URI;
import java.util.Iterator;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;

/** Puts our file systems in the place of those that Hadoop keeps open. */
public class FileSystems {
  /** Lets all file systems of a scheme be of a class of ours: those that are open, and those that will be. */
  public static void replace(String scheme, String className, Configuration conf) throws Exception {
    conf.set("fs." + scheme + ".impl", className);
    Object cache = field(FileSystem.class, "CACHE").get(null);
    synchronized (cache) {
      Iterator open = ((Map) field(cache.getClass(), "map").get(cache)).entrySet().iterator();
      while (open.hasNext()) {
        Map.Entry entry = (Map.Entry) open.next();
        FileSystem earlier = (FileSystem) entry.getValue();
        if (!scheme.equals(earlier.getUri().getScheme()) || earlier.getClass().getName().equals(className)) continue;
        FileSystem files = (FileSystem) conf.getClassByName(className)
            .getConstructor(new Class[0]).newInstance(new Object[0]);
        // With the settings it was opened with: they may hold what its store asks for.
        files.initialize(earlier.getUri(), earlier.getConf());
        entry.setValue(files);
      }
    }
  }

  private static Field field(Class owner, String name) throws Exception {
    Field found = owner.getDeclaredField(name);
    found.setAccessible(true);
    return found;
  }

  /** The class that serves a place now. */
  public static String serving(String place, Configuration conf) throws Exception {
    return FileSystem.get(new URI(place), conf).getClass().getName();
  }
}

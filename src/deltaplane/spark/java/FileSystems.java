package deltaplane;

import java.lang.reflect.Method;
import java.net.URI;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;

/** Puts our file systems in the place of those that Hadoop keeps open. */
public class FileSystems {
  /** The file system for a place, from now on of a class of ours. */
  public static void replace(String place, String className, Configuration conf) throws Exception {
    URI uri = new URI(place);
    if (FileSystem.get(uri, conf).getClass().getName().equals(className)) return;
    FileSystem files = (FileSystem) conf.getClassByName(className)
        .getConstructor(new Class[0]).newInstance(new Object[0]);
    files.initialize(uri, conf);
    Method put = FileSystem.class.getDeclaredMethod("addFileSystemForTesting",
        new Class[] {URI.class, Configuration.class, FileSystem.class});
    put.setAccessible(true);
    put.invoke(null, new Object[] {uri, conf, files});
  }

  /** The class that serves a place now. */
  public static String serving(String place, Configuration conf) throws Exception {
    return FileSystem.get(new URI(place), conf).getClass().getName();
  }
}

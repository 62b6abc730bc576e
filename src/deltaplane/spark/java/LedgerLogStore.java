package deltaplane;

import io.delta.storage.CloseableIterator;
import io.delta.storage.LogStore;
import java.io.BufferedWriter;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.OutputStream;
import java.io.OutputStreamWriter;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.SparkSession;
import scala.Option;

/**
 * The log store that Delta asks. Commits of tables that the ledger manages go to Python, which decides; listings are
 * cut to what the caller's view may see. Everything else is left to the log store that served the scheme before.
 *
 * A view is a transaction or a read point. It travels as a local property of the SparkContext, which Spark hands on to
 * the threads it starts. Tasks never ask Python: what they read are plain files.
 */
public class LedgerLogStore extends LogStore {
  public static final String VIEW = "deltaplane.view";
  private static final int LONG_TEXT = 1 << 20;
  private static final int DIGITS = 20;

  /**
   * Implemented in Python. A log is the path of a `_delta_log` folder. Views are null outside of one.
   * Answers that begin with '!' are failures, see check().
   */
  public interface Port {
    /**
     * null: not managed. Otherwise the newest version to be seen or "", then a line for each staged commit.
     * Whoever is about to write a commit tells which version; others tell -1. `early` tells that Delta's log, and with
     * it the DataFrame or the DeltaTable, was made before the view began, or in another one: all threads share it.
     */
    String look(String log, long writes, String view, String query, boolean early);

    /**
     * Takes the lines of a commit, or, where they are many, the name of a local file that holds them. null: it is done;
     * otherwise it took place, and the log does not show it yet.
     */
    String commit(String file, String lines, String linesFile, String view, String query);

    /** A commit that lies elsewhere: "path\tsize\ttime\tfile that holds it"; null: nowhere else. */
    String find(String file, String view);

    /** Asks for a checkpoint of the newest version; or, behind a commit, for the one that is due, if there is none. */
    String checkpoint(String log, boolean due);

    /** Tells that the table at a place was dropped, or only its name. */
    String dropped(String place, String namespace, String table);

    /** Tells that the table at a place has another name. */
    String renamed(String place, String namespace, String table, String other);

    /** Tells that a table is about to be created under a name, and where. */
    String creating(String namespace, String table, String place);

    /** Tells that a name leads to the table at a place. */
    String created(String place, String namespace, String table);

    /** Where the ledger's table of a name lies; null: it has none. */
    String named(String namespace, String table);

    /** A line for each name that the ledger has, with a dot between namespace and table. */
    String names();

    /** Whether a statement may run. */
    String gate(String statement, String table, String view);
  }

  private static volatile Port port;
  private static volatile SparkContext context;

  /** Begins to ask a port, for one SparkContext; null ends it. */
  public static void install(Port installed, SparkContext running) {
    context = running;
    port = installed;
  }

  /** The port, where it may be asked: never by a task, also not in local mode, where tasks share the driver's JVM. */
  static Port port() {
    Port installed = port;
    return installed == null || TaskContext.get() != null || context.isStopped() ? null : installed;
  }

  private static String property(String name) {
    return context.getLocalProperty(name);
  }

  public static String view() {
    return port() == null ? null : property(VIEW);
  }

  private static String query() {
    return property("sql.streaming.queryId");
  }

  /** Staged commits that were found, by view and file: they stay as they are until the view ends. */
  private static final ConcurrentHashMap FOUND = new ConcurrentHashMap();

  /** A commit that lies elsewhere, or null. */
  static String find(Path path) throws IOException {
    String view = view();
    Map known = view == null ? null : (Map) FOUND.get(view);
    String file = path.toString();
    if (known != null && known.containsKey(file)) return (String) known.get(file);
    String found = check(port().find(file, view));
    if (view != null && found != null) {
      FOUND.putIfAbsent(view, new ConcurrentHashMap());
      ((Map) FOUND.get(view)).put(file, found);
    }
    return found;
  }

  private static final String CHECKSUMS = "spark.databricks.delta.writeChecksumFile.enabled";

  /** Sessions that write no checksums: to each the views that it commits in, and its setting from before. */
  private static final Map QUIET = new HashMap();

  /** Delta writes checksums past the log store, and the checksum of a version that is rolled back would lie. */
  private static void writeNoChecksums(String view) {
    SparkSession session = SparkSession.active();
    synchronized (QUIET) {
      if (!QUIET.containsKey(session))
        QUIET.put(session, new Object[] {new HashSet(), session.conf().getOption(CHECKSUMS)});
      ((Set) ((Object[]) QUIET.get(session))[0]).add(view);
      session.conf().set(CHECKSUMS, "false");
    }
  }

  /** Stands for a view where a commit is not in the log yet: readers give up at a checksum that is ahead of it. */
  private static final String DELAYED = "delayed";

  private static void writeChecksumsAgain(String view) {
    synchronized (QUIET) {
      Iterator sessions = QUIET.entrySet().iterator();
      while (sessions.hasNext()) {
        Map.Entry entry = (Map.Entry) sessions.next();
        Set views = (Set) ((Object[]) entry.getValue())[0];
        if (!views.remove(view) || !views.isEmpty()) continue;
        Option before = (Option) ((Object[]) entry.getValue())[1];
        SparkSession session = (SparkSession) entry.getKey();
        if (before.isEmpty()) session.conf().unset(CHECKSUMS);
        else session.conf().set(CHECKSUMS, (String) before.get());
        sessions.remove();
      }
    }
  }

  /** Forgets a view that has ended. */
  public static void forget(String view) {
    FOUND.remove(view);
    writeChecksumsAgain(view);
  }

  /** Failures as the exceptions that Delta knows. */
  static String check(String answer) throws IOException {
    if (answer == null || !answer.startsWith("!")) return answer;
    int colon = answer.indexOf(':');
    String kind = answer.substring(1, colon);
    String text = answer.substring(colon + 1);
    if (kind.equals("lost")) throw new FileAlreadyExistsException(text);
    if (kind.equals("refused")) throw new UnsupportedOperationException(text);
    throw new IOException(text);
  }

  static boolean isCommit(Path path) {
    String name = path.getName();
    return name.length() == DIGITS + 5 && name.endsWith(".json") && version(name) >= 0
        && path.getParent() != null && path.getParent().getName().equals("_delta_log");
  }

  /** The version at the beginning of a name, or -1. */
  private static long version(String name) {
    if (name.length() <= DIGITS || name.charAt(DIGITS) != '.') return -1;
    for (int i = 0; i < DIGITS; i++) if (!Character.isDigit(name.charAt(i))) return -1;
    return Long.parseLong(name.substring(0, DIGITS));
  }

  /** The newest version that a file of the log tells of: a compacted one tells of several. */
  private static long newest(String name) {
    long first = version(name);
    if (first < 0 || !name.endsWith(".compacted.json")) return first;
    return Math.max(first, version(name.substring(DIGITS + 1)));
  }

  /** In the Hadoop settings, with the scheme behind it: the log store that served the scheme before. */
  public static final String INNER = "deltaplane.logStore.";
  private final ConcurrentHashMap inners = new ConcurrentHashMap();

  /** The view in which it was made. Delta makes a log store together with its log. */
  private final String born;

  public LedgerLogStore(Configuration conf) {
    super(conf);
    born = view();
  }

  /** What the view sees of a log. */
  private String look(Path log, long writes) throws IOException {
    Port asked = port();
    if (asked == null) return null;
    String view = view();
    return check(asked.look(log.toString(), writes, view, query(), view != null && !view.equals(born)));
  }

  private LogStore inner(Path path) throws IOException {
    String scheme = path.toUri().getScheme() == null ? "file" : path.toUri().getScheme();
    LogStore found = (LogStore) inners.get(scheme);
    if (found != null) return found;
    try {
      Class named = initHadoopConf().getClassByName(
          initHadoopConf().get(INNER + scheme, "io.delta.storage.HDFSLogStore"));
      found = (LogStore) named.getConstructor(new Class[] {Configuration.class})
          .newInstance(new Object[] {initHadoopConf()});
    } catch (ReflectiveOperationException error) {
      throw new IOException("The log store for " + scheme + " cannot be started: " + error, error);
    }
    LogStore earlier = (LogStore) inners.putIfAbsent(scheme, found);
    return earlier == null ? found : earlier;
  }

  public CloseableIterator read(Path path, Configuration conf) throws IOException {
    String view = view();
    if (view != null && version(path.getName()) >= 0 && !path.getName().endsWith(".json")) {
      String seen = look(path.getParent(), -1);
      if (seen != null && version(path.getName()) > pin(seen))
        throw new FileNotFoundException(path + " is newer than what this transaction or read point sees");
    }
    if (view != null && isCommit(path)) {
      String found = find(path);
      if (found != null) return inner(path).read(content(found), conf);
    }
    return inner(path).read(path, conf);
  }

  private static long pin(String seen) {
    String first = seen.split("\n", 2)[0];
    return first.isEmpty() ? Long.MAX_VALUE : Long.parseLong(first);
  }

  public void write(Path path, Iterator actions, Boolean overwrite, Configuration conf) throws IOException {
    Port asked = port();
    String view = view();
    long writes = isCommit(path) ? version(path.getName()) : -1;
    String seen = look(path.getParent(), writes);
    if (seen == null) {
      inner(path).write(path, actions, overwrite, conf);
    } else if (isCommit(path)) {
      writeChecksumsAgain(DELAYED);
      if (view != null) writeNoChecksums(view);
      if (commit(asked, path, actions, view) != null) writeNoChecksums(DELAYED);
    } else if (view == null && path.getName().endsWith(".crc")) {
      inner(path).write(path, actions, overwrite, conf);
    }
    // What else Delta writes beside commits are checkpoints and hints to them, and those the ledger writes itself; and
    // the checksum of a commit that may never take place would lie.
  }

  private static String commit(Port asked, Path path, Iterator actions, String view) throws IOException {
    StringBuilder lines = new StringBuilder();
    while (actions.hasNext() && lines.length() < LONG_TEXT) lines.append((String) actions.next()).append('\n');
    if (lines.length() < LONG_TEXT)
      return check(asked.commit(path.toString(), lines.toString(), null, view, query()));
    java.nio.file.Path file = Files.createTempFile("deltaplane", ".json", new java.nio.file.attribute.FileAttribute[0]);
    try {
      OutputStream sink = Files.newOutputStream(file, new java.nio.file.OpenOption[0]);
      Writer writer = new BufferedWriter(new OutputStreamWriter(sink, StandardCharsets.UTF_8), 1 << 16);
      try {
        writer.write(lines.toString());
        while (actions.hasNext()) writer.append((String) actions.next()).append('\n');
      } finally {
        writer.close();
      }
      return check(asked.commit(path.toString(), null, file.toString(), view, query()));
    } finally {
      Files.deleteIfExists(file);
    }
  }

  public Iterator listFrom(Path path, Configuration conf) throws IOException {
    String view = view();
    String seen = look(path.getParent(), -1);
    if (seen == null || view == null) return inner(path).listFrom(path, conf);
    List found = new ArrayList();
    long pin = pin(seen);
    Iterator all = inner(path).listFrom(path, conf);
    while (all.hasNext()) {
      FileStatus file = (FileStatus) all.next();
      if (newest(file.getPath().getName()) <= pin) found.add(file);
    }
    String[] staged = seen.split("\n");
    for (int i = 1; i < staged.length; i++) {
      FileStatus file = status(staged[i]);
      if (file.getPath().getName().compareTo(path.getName()) >= 0) found.add(file);
    }
    Collections.sort(found, new Comparator() {
      public int compare(Object one, Object other) {
        return ((FileStatus) one).getPath().getName().compareTo(((FileStatus) other).getPath().getName());
      }
    });
    return found.iterator();
  }

  /** A line of an answer as the status of a file. */
  static FileStatus status(String line) {
    String[] parts = line.split("\t");
    return new FileStatus(Long.parseLong(parts[1]), false, 1, 1 << 27, Long.parseLong(parts[2]), new Path(parts[0]));
  }

  /** The file that holds what a line of an answer tells of. Delta insists on the name of version 0, so it may differ. */
  static Path content(String line) {
    return new Path(line.substring(line.lastIndexOf('\t') + 1));
  }

  /**
   * Where a task finds version 0 of a table that its transaction creates; null where it is to read what it was told.
   * The name follows from the view that Spark hands to the task, so nobody is asked.
   */
  static Path first(Path path) {
    TaskContext task = TaskContext.get();
    if (task == null || !isCommit(path) || version(path.getName()) != 0) return null;
    String view = task.getLocalProperty(VIEW);
    String name = path.getName().substring(0, DIGITS) + ".dp-" + view + ".json";
    return view == null ? null : new Path(path.getParent(), "_staged_commits/" + name);
  }

  public Path resolvePathOnPhysicalStorage(Path path, Configuration conf) throws IOException {
    return inner(path).resolvePathOnPhysicalStorage(path, conf);
  }

  public Boolean isPartialWriteVisible(Path path, Configuration conf) throws IOException {
    // Delta asks this before it writes a checkpoint, and takes an exception as: not this time. The ledger writes them,
    // with a commit when the table's interval asks for one. Here it does so behind a large commit, and when somebody
    // else asks, such as DROP FEATURE.
    if (port() != null && isCalledBy("Checkpoints") && look(log(path), -1) != null) {
      if (view() == null) check(port().checkpoint(log(path).toString(), isCalledBy("hooks.CheckpointHook")));
      throw new IOException("Checkpoints of this table are written by the ledger.");
    }
    return inner(path).isPartialWriteVisible(path, conf);
  }

  private static Path log(Path path) {
    return path.getName().equals("_delta_log") ? path : path.getParent();
  }

  private static boolean isCalledBy(String part) {
    StackTraceElement[] stack = Thread.currentThread().getStackTrace();
    for (int i = 0; i < stack.length; i++)
      if (stack[i].getClassName().startsWith("org.apache.spark.sql.delta." + part)) return true;
    return false;
  }
}

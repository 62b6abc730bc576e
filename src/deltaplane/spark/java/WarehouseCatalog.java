package deltaplane;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.lang.reflect.Field;
import java.net.URI;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.UUID;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.SparkConf;
import org.apache.spark.sql.catalyst.analysis.DatabaseAlreadyExistsException;
import org.apache.spark.sql.catalyst.analysis.NoSuchDatabaseException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.catalyst.catalog.CatalogDatabase;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTableType;
import org.apache.spark.sql.catalyst.catalog.ExternalCatalog;
import org.apache.spark.sql.catalyst.catalog.ExternalCatalogWithListener;
import org.apache.spark.sql.catalyst.catalog.InMemoryCatalog;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.errors.QueryCompilationErrors;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.Platform;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Spark's in-memory catalog, with the names of Delta tables and schemas read from the warehouse folder at
 * each look-up.
 *
 * A schema is a folder DB.db of the warehouse; the schema "default" is the warehouse itself. A Delta
 * table is a folder of its schema whose _delta_log holds a version. What a folder cannot say (a location
 * elsewhere, a schema's comment) is one JSON file in WAREHOUSE.names: DB.json for a schema, DB/TABLE.json
 * for a table.
 *
 * Delta tables are never kept in memory, so nothing can be stale when another process creates, drops or
 * replaces them. Views, functions and tables of other formats are kept in memory by the superclass, for
 * this process only.
 *
 * The source is compiled by Janino: raw types and plain loops, because it knows neither generics nor
 * lambdas well.
 */
public class WarehouseCatalog extends InMemoryCatalog {
  /**
   * What Spark's session catalog accepts as a name. Nothing else resolves, so a name cannot lead out of
   * the warehouse.
   */
  private static final Pattern NAME = Pattern.compile("\\w+");
  private static final Pattern LOG_VERSION = Pattern.compile("\\d{20}\\.(json|checkpoint\\..*)");
  private static final ObjectMapper JSON = new ObjectMapper();

  private final Configuration conf;
  private final Path warehouse;
  private final Path names;
  /** The superclass's own map of schemas: the only way to forget one there without deleting its folder. */
  private final scala.collection.mutable.HashMap memory;
  /**
   * Location of each schema that `memory` holds as a place for views, functions and tables of other
   * formats.
   */
  private final Map anchored = new HashMap();
  private CatalogDatabase defaultDatabase;

  public WarehouseCatalog(SparkConf sparkConf, Configuration conf, String warehouse) throws Exception {
    super(sparkConf, conf);
    this.conf = conf;
    this.warehouse = new Path(warehouse);
    this.names = new Path(warehouse + ".names");
    Field field = InMemoryCatalog.class.getDeclaredField("catalog");
    field.setAccessible(true);
    this.memory = (scala.collection.mutable.HashMap) field.get(this);
  }

  /**
   * Puts a WarehouseCatalog in the place of the in-memory catalog of a running session, with what that
   * one holds.
   */
  public static void install(
      ExternalCatalogWithListener holder, SparkConf sparkConf, Configuration conf, String warehouse)
      throws Exception {
    WarehouseCatalog catalog = new WarehouseCatalog(sparkConf, conf, warehouse);
    Field delegate = ExternalCatalogWithListener.class.getDeclaredField("delegate");
    delegate.setAccessible(true);
    catalog.takeOver((ExternalCatalog) delegate.get(holder));
    delegate.set(holder, catalog);
  }

  private void takeOver(ExternalCatalog old) {
    defaultDatabase = old.getDatabase(SessionCatalog.DEFAULT_DATABASE());
    Iterator databases = CollectionConverters.asJava(old.listDatabases()).iterator();
    while (databases.hasNext()) {
      String db = (String) databases.next();
      createDatabase(old.getDatabase(db), true);
      Iterator tables = CollectionConverters.asJava(old.listTables(db)).iterator();
      while (tables.hasNext()) {
        String name = (String) tables.next();
        CatalogTable table = old.getTable(db, name);
        createTable(table, true);
        if (!isDelta(table) && !table.partitionColumnNames().isEmpty())
          createPartitions(db, name, old.listPartitions(db, name, Option.empty()), true);
      }
      Iterator functions = CollectionConverters.asJava(old.listFunctions(db, "*")).iterator();
      while (functions.hasNext()) createFunction(db, old.getFunction(db, (String) functions.next()));
    }
  }

  // ---- schemas

  private Path defaultPlace(String db) {
    return isDefault(db) ? new Path(defaultDatabase.locationUri()) : new Path(warehouse, db + ".db");
  }

  private boolean isDefault(String db) {
    return db.equals(defaultDatabase.name());
  }

  private Path recordOf(String db) {
    return new Path(names, db + ".json");
  }

  /** The schema as the disk has it now, or null. */
  private CatalogDatabase database(String db) {
    if (!NAME.matcher(db).matches()) return null;
    Map record = read(recordOf(db));
    if (record == null && isDefault(db)) return defaultDatabase;
    if (record == null && !isFolder(defaultPlace(db))) return null;
    if (record == null) record = new HashMap();
    Object location = record.get("location");
    Path place = location == null ? defaultPlace(db) : new Path(URI.create((String) location));
    Object comment = record.get("comment");
    Object properties = record.get("properties");
    return new CatalogDatabase(db, comment == null ? "" : (String) comment, place.toUri(),
        scalaMap(properties == null ? new HashMap() : (Map) properties));
  }

  private void record(CatalogDatabase definition) {
    Map record = new TreeMap();
    if (!new Path(definition.locationUri()).equals(defaultPlace(definition.name())))
      record.put("location", definition.locationUri().toString());
    if (!definition.description().isEmpty()) record.put("comment", definition.description());
    Map properties = new TreeMap(CollectionConverters.asJava(definition.properties()));
    properties.remove("owner");
    if (!properties.isEmpty()) record.put("properties", properties);
    if (record.isEmpty()) delete(recordOf(definition.name()), false);
    else write(recordOf(definition.name()), record);
  }

  public synchronized boolean databaseExists(String db) {
    CatalogDatabase found = database(db);
    if (found == null) {
      memory.remove(db);
      anchored.remove(db);
      return false;
    }
    // The superclass finds views, functions and foreign tables through its own entry of the schema.
    if (!found.locationUri().equals(anchored.get(db))) {
      memory.remove(db);
      super.createDatabase(found, true);
      anchored.put(db, found.locationUri());
    }
    return true;
  }

  public synchronized CatalogDatabase getDatabase(String db) {
    requireDbExists(db);
    return database(db);
  }

  public synchronized Seq listDatabases() {
    TreeSet found = new TreeSet();
    found.add(defaultDatabase.name());
    addNames(warehouse, ".db", true, found);
    addNames(names, ".json", false, found);
    return scalaSeq(found);
  }

  public void createDatabase(CatalogDatabase definition, boolean ignoreIfExists) {
    synchronized (this) {
      if (!databaseExists(definition.name())) {
        super.createDatabase(definition, true);
        anchored.put(definition.name(), definition.locationUri());
        record(definition);
      } else if (!ignoreIfExists) {
        Platform.throwException(new DatabaseAlreadyExistsException(definition.name()));
      }
    }
  }

  public synchronized void alterDatabase(CatalogDatabase definition) {
    requireDbExists(definition.name());
    record(definition);
  }

  /**
   * Unlike the superclass, deletes no file that is not a table's, except in CASCADE of a schema in its
   * default place: a folder given by LOCATION, or one with tables of other formats that only another
   * process knows, is not ours.
   */
  public void dropDatabase(String db, boolean ignoreIfNotExists, boolean cascade) {
    synchronized (this) {
      if (!databaseExists(db)) {
        if (!ignoreIfNotExists) Platform.throwException(new NoSuchDatabaseException(db));
        return;
      }
      Path place = new Path(database(db).locationUri());
      boolean own = place.equals(defaultPlace(db));
      boolean files = own && list(place).length > 0;
      if (!cascade && (files || !listTables(db).isEmpty() || !listFunctions(db, "*").isEmpty()))
        Platform.throwException(QueryCompilationErrors.cannotDropNonemptyDatabaseError(db));
      Iterator tables = CollectionConverters.asJava(listTables(db)).iterator();
      while (tables.hasNext()) dropTable(db, (String) tables.next(), true, false);
      if (own || list(place).length == 0) delete(place, true);
      delete(new Path(names, db), true);
      delete(recordOf(db), false);
      databaseExists(db); // Forgets the schema's views and functions.
    }
  }

  // ---- tables

  private Path defaultPlace(String db, String table) {
    return new Path(new Path(database(db).locationUri()), table);
  }

  private Path recordOf(String db, String table) {
    return new Path(new Path(names, db), table + ".json");
  }

  /** The Delta table as the disk has it now, or null. */
  private CatalogTable delta(String db, String table) {
    if (!NAME.matcher(table).matches() || !databaseExists(db)) return null;
    Map record = read(recordOf(db, table));
    if (record == null) {
      Path place = defaultPlace(db, table);
      FileStatus first = firstVersion(place);
      if (first == null) return null;
      return CatalogEntries.delta(db, table, CatalogTableType.MANAGED(), place, first.getModificationTime());
    }
    if (record.get("location") == null) return null;
    Path place = new Path(URI.create((String) record.get("location")));
    CatalogTableType type = CatalogTableType.apply((String) record.get("type"));
    return CatalogEntries.delta(db, table, type, place, ((Number) record.get("created")).longValue());
  }

  private static boolean isDelta(CatalogTable table) {
    return table.provider().isDefined() && "delta".equalsIgnoreCase((String) table.provider().get());
  }

  /** A folder is a table once its log holds a version: Delta makes _delta_log before the first commit. */
  private FileStatus firstVersion(Path table) {
    Path log = new Path(table, "_delta_log");
    try {
      return fileSystem(log).getFileStatus(new Path(log, "00000000000000000000.json"));
    } catch (FileNotFoundException e) {
      // In an old log version 0 has been cleaned up, so any other version counts.
      FileStatus[] files = list(log);
      for (int i = 0; i < files.length; i++)
        if (LOG_VERSION.matcher(files[i].getPath().getName()).matches()) return files[i];
      return null;
    } catch (IOException e) {
      throw failed("look at", table, e);
    }
  }

  public synchronized boolean tableExists(String db, String table) {
    if (!databaseExists(db)) return false;
    return super.tableExists(db, table) || (delta(db, table) != null && !CatalogEntries.deltaIsAddingTheName());
  }

  public synchronized CatalogTable getTable(String db, String table) {
    requireDbExists(db);
    if (super.tableExists(db, table)) return super.getTable(db, table);
    CatalogTable found = delta(db, table);
    if (found == null) Platform.throwException(new NoSuchTableException(db, table));
    return found;
  }

  public Seq getTablesByName(String db, Seq tables) {
    List found = new ArrayList();
    Iterator wanted = CollectionConverters.asJava(tables).iterator();
    while (wanted.hasNext()) {
      String table = (String) wanted.next();
      if (tableExists(db, table)) found.add(getTable(db, table));
    }
    return scalaSeq(found);
  }

  public synchronized Seq listTables(String db) {
    TreeSet found = new TreeSet();
    addNames(new Path(getDatabase(db).locationUri()), "", true, found);
    addNames(new Path(names, db), ".json", false, found);
    Iterator each = found.iterator();
    while (each.hasNext()) if (delta(db, (String) each.next()) == null) each.remove();
    found.addAll(CollectionConverters.asJava(super.listTables(db)));
    return scalaSeq(found);
  }

  public void createTable(CatalogTable definition, boolean ignoreIfExists) {
    synchronized (this) {
      String db = (String) definition.identifier().database().get();
      String table = definition.identifier().table();
      if (!isDelta(definition)) {
        super.createTable(definition, ignoreIfExists);
        return;
      }
      requireDbExists(db);
      Map record = read(recordOf(db, table));
      boolean elsewhere = record != null && record.get("location") != null
          && !place(definition).equals(delta(db, table).location());
      if (!super.tableExists(db, table) && !elsewhere) record(definition);
      else if (!ignoreIfExists) Platform.throwException(new TableAlreadyExistsException(db, table));
    }
  }

  private static URI place(CatalogTable definition) {
    return new Path(definition.location()).toUri();
  }

  /** Makes the name lead to the table: by a file, unless the folder says it already. */
  private void record(CatalogTable definition) {
    String db = (String) definition.identifier().database().get();
    String table = definition.identifier().table();
    boolean managed = definition.tableType().equals(CatalogTableType.MANAGED());
    if (managed && new Path(place(definition)).equals(defaultPlace(db, table))) {
      delete(recordOf(db, table), false);
      return;
    }
    Map record = new TreeMap();
    record.put("location", place(definition).toString());
    record.put("type", definition.tableType().name());
    record.put("created", Long.valueOf(definition.createTime()));
    write(recordOf(db, table), record);
  }

  /**
   * Removes the name. A file without a location stays where files were kept in the place of a managed
   * table of that name.
   */
  private void forget(String db, String table) {
    if (firstVersion(defaultPlace(db, table)) == null) delete(recordOf(db, table), false);
    else write(recordOf(db, table), new HashMap());
  }

  public void dropTable(String db, String table, boolean ignoreIfNotExists, boolean purge) {
    synchronized (this) {
      CatalogTable found = databaseExists(db) && !super.tableExists(db, table) ? delta(db, table) : null;
      if (found == null) {
        super.dropTable(db, table, ignoreIfNotExists, purge);
        return;
      }
      if (found.tableType().equals(CatalogTableType.MANAGED())) {
        // The log goes first: a table whose deletion is cut short must not look alive.
        delete(new Path(new Path(found.location()), "_delta_log"), true);
        delete(new Path(found.location()), true);
      }
      forget(db, table);
    }
  }

  public void renameTable(String db, String oldName, String newName) {
    synchronized (this) {
      CatalogTable found = getTable(db, oldName);
      if (super.tableExists(db, oldName)) {
        super.renameTable(db, oldName, newName);
        return;
      }
      if (tableExists(db, newName)) Platform.throwException(new TableAlreadyExistsException(db, newName));
      Path place = new Path(found.location());
      if (found.tableType().equals(CatalogTableType.MANAGED()) && place.equals(defaultPlace(db, oldName))) {
        move(place, defaultPlace(db, newName));
        delete(recordOf(db, newName), false);
      } else {
        record(CatalogEntries.delta(db, newName, found.tableType(), place, found.createTime()));
        forget(db, oldName);
      }
    }
  }

  /** A new location is all that the catalog has to know of a Delta table; its log has the rest. */
  public synchronized void alterTable(CatalogTable definition) {
    String db = (String) definition.identifier().database().get();
    String table = definition.identifier().table();
    if (!super.tableExists(db, table)) {
      if (!place(definition).equals(getTable(db, table).location())) record(definition);
    } else if (isDelta(definition)) {
      // CONVERT TO DELTA made the table one that all processes share.
      forgetInMemory(db, table);
      record(definition);
    } else {
      super.alterTable(definition);
    }
  }

  /** The superclass's dropTable would delete the files. */
  private void forgetInMemory(String db, String table) {
    try {
      Object schema = memory.get(db).get();
      Object tables = schema.getClass().getMethod("tables", new Class[0]).invoke(schema, new Object[0]);
      ((scala.collection.mutable.HashMap) tables).remove(table);
    } catch (Exception e) {
      throw new IllegalStateException("this Spark keeps catalog entries in an unknown way", e);
    }
  }

  public synchronized void alterTableDataSchema(String db, String table, StructType schema) {
    if (super.tableExists(db, table) || delta(db, table) == null)
      super.alterTableDataSchema(db, table, schema);
  }

  public synchronized void alterTableSchema(String db, String table, StructType schema) {
    if (super.tableExists(db, table) || delta(db, table) == null) super.alterTableSchema(db, table, schema);
  }

  public synchronized void alterTableStats(String db, String table, Option stats) {
    if (super.tableExists(db, table) || delta(db, table) == null) super.alterTableStats(db, table, stats);
  }

  // ---- files

  /** Without the checksum layer of local files: a record and its checksum cannot be replaced in one step. */
  private FileSystem fileSystem(Path path) throws IOException {
    FileSystem found = path.getFileSystem(conf);
    return found instanceof LocalFileSystem && path.toString().startsWith(names.toString())
        ? ((LocalFileSystem) found).getRawFileSystem()
        : found;
  }

  private static RuntimeException failed(String what, Path path, IOException cause) {
    return new java.io.UncheckedIOException("could not " + what + " " + path, cause);
  }

  private boolean isFolder(Path path) {
    try {
      return fileSystem(path).getFileStatus(path).isDirectory();
    } catch (FileNotFoundException e) {
      return false;
    } catch (IOException e) {
      throw failed("look at", path, e);
    }
  }

  private FileStatus[] list(Path folder) {
    try {
      return fileSystem(folder).listStatus(folder);
    } catch (FileNotFoundException e) {
      return new FileStatus[0];
    } catch (IOException e) {
      throw failed("list", folder, e);
    }
  }

  /**
   * Adds what a folder's entries are called without the suffix, where Spark could look it up under that
   * name.
   */
  private void addNames(Path folder, String suffix, boolean folders, TreeSet found) {
    boolean anyCase = SQLConf.get().caseSensitiveAnalysis();
    FileStatus[] files = list(folder);
    for (int i = 0; i < files.length; i++) {
      String name = files[i].getPath().getName();
      if (files[i].isDirectory() != folders || !name.endsWith(suffix)) continue;
      name = name.substring(0, name.length() - suffix.length());
      boolean reachable = anyCase || name.equals(name.toLowerCase(Locale.ROOT));
      if (reachable && NAME.matcher(name).matches()) found.add(name);
    }
  }

  private void delete(Path path, boolean recursive) {
    try {
      FileSystem fs = fileSystem(path);
      if (!fs.delete(path, recursive) && fs.exists(path)) throw new IOException("it is still there");
    } catch (IOException e) {
      throw failed("delete", path, e);
    }
  }

  private void move(Path from, Path to) {
    try {
      // Into an existing folder, a Hadoop rename would move the table one level down.
      if (fileSystem(to).exists(to) || !fileSystem(from).rename(from, to))
        throw new IOException(from + " was not moved");
    } catch (IOException e) {
      throw failed("move a table to", to, e);
    }
  }

  private Map read(Path record) {
    try {
      InputStream in = fileSystem(record).open(record);
      try {
        return (Map) JSON.readValue(in, Map.class);
      } finally {
        in.close();
      }
    } catch (FileNotFoundException e) {
      return null;
    } catch (IOException e) {
      throw failed("read", record, e);
    }
  }

  /** Through a temporary file, so that another process reads the old record or the new one. */
  private void write(Path record, Map content) {
    Path temporary = new Path(record.getParent(), "." + record.getName() + "." + UUID.randomUUID());
    try {
      FileSystem fs = fileSystem(record);
      OutputStream out = fs.create(temporary, false);
      try {
        out.write(JSON.writeValueAsBytes(content));
      } finally {
        out.close();
      }
      // Local files are replaced by a rename; other stores want the target gone.
      if (!fs.rename(temporary, record) && !(fs.delete(record, false) && fs.rename(temporary, record)))
        throw new IOException(temporary + " was not renamed");
    } catch (IOException e) {
      throw failed("write", record, e);
    }
  }

  private static Seq scalaSeq(java.util.Collection values) {
    return CollectionConverters.asScala(new ArrayList(values)).toSeq();
  }

  private static scala.collection.immutable.Map scalaMap(Map values) {
    return scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala(values));
  }
}

package deltaplane;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.TreeSet;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.analysis.NoSuchDatabaseException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.catalyst.catalog.CatalogDatabase;
import org.apache.spark.sql.catalyst.catalog.CatalogFunction;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTableType;
import org.apache.spark.sql.catalyst.catalog.ExternalCatalog;
import org.apache.spark.sql.catalyst.catalog.ExternalCatalogWithListener;
import org.apache.spark.sql.catalyst.util.StringUtils$;
import org.apache.spark.sql.errors.QueryCompilationErrors;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.Platform;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The names of the ledger's tables, behind those of the session's own catalog: what that one knows, wins. Names are
 * asked for one at a time and when they are needed, so a session opens as fast with ten thousand tables as with ten.
 *
 * A table of the ledger is one with a place of its own: DROP takes its name away and leaves its files.
 */
public class LedgerNames extends ExternalCatalogWithListener {
  /** What Spark's session catalog accepts as a name. */
  private static final Pattern NAME = Pattern.compile("\\w+");

  private final ExternalCatalog own;
  private final Configuration conf;
  private final Path warehouse;

  public LedgerNames(ExternalCatalog own, Configuration conf, String warehouse) {
    super(own);
    this.own = own;
    this.conf = conf;
    this.warehouse = new Path(warehouse);
  }

  /** Puts the ledger's names behind those of a running session, once. */
  public static void install(ExternalCatalogWithListener holder, Configuration conf, String warehouse)
      throws Exception {
    if (holder.unwrapped() instanceof LedgerNames) return;
    Field delegate = ExternalCatalogWithListener.class.getDeclaredField("delegate");
    delegate.setAccessible(true);
    delegate.set(holder, new LedgerNames(holder.unwrapped(), conf, warehouse));
  }

  // ---- what the ledger says

  /** Where the ledger's table of a name lies, or null. */
  private Path named(String db, String table) {
    LedgerLogStore.Port port = LedgerLogStore.port();
    // "delta" is what stands before paths.
    if (port == null || db.equals("delta") || !NAME.matcher(db).matches() || !NAME.matcher(table).matches()) return null;
    try {
      String place = LedgerLogStore.check(port.named(db, table));
      return place == null ? null : qualified(place);
    } catch (IOException failed) {
      throw new UncheckedIOException(failed);
    }
  }

  /** A place as Hadoop spells it. */
  private Path qualified(String place) {
    if (place.startsWith("/")) return new Path("file:" + place);
    if (!place.startsWith("s3://")) return new Path(place);
    try {
      FileSystem.getFileSystemClass("s3", conf);
      return new Path(place);
    } catch (IOException unknown) {
      return new Path("s3a" + place.substring(2));
    }
  }

  /** Names of tables in a schema, or, where none is given, of schemas. */
  private Collection names(String db) {
    TreeSet found = new TreeSet();
    LedgerLogStore.Port port = LedgerLogStore.port();
    if (port == null || "delta".equals(db)) return found;
    try {
      String all = LedgerLogStore.check(port.names());
      Iterator lines = Arrays.asList(all.split("\n")).iterator();
      while (lines.hasNext()) {
        String line = (String) lines.next();
        int dot = line.indexOf('.');
        if (dot > 0 && (db == null || line.substring(0, dot).equals(db)))
          found.add(db == null ? line.substring(0, dot) : line.substring(dot + 1));
      }
    } catch (IOException failed) {
      throw new UncheckedIOException(failed);
    }
    return found;
  }

  private boolean isSchema(String db) {
    return !names(db).isEmpty();
  }

  private static Seq together(Seq own, Collection more) {
    TreeSet all = new TreeSet(CollectionConverters.asJava(own));
    all.addAll(more);
    return CollectionConverters.asScala(new ArrayList(all)).toSeq();
  }

  private static Seq none() {
    return CollectionConverters.asScala(new ArrayList()).toSeq();
  }

  // ---- schemas

  public boolean databaseExists(String db) {
    return own.databaseExists(db) || isSchema(db);
  }

  public CatalogDatabase getDatabase(String db) {
    return own.databaseExists(db) || !isSchema(db) ? super.getDatabase(db) : schema(db);
  }

  private CatalogDatabase schema(String db) {
    return new CatalogDatabase(db, "", new Path(warehouse, db + ".db").toUri(),
        scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala(new HashMap())));
  }

  public Seq listDatabases() {
    return together(super.listDatabases(), names(null));
  }

  public Seq listDatabases(String pattern) {
    return StringUtils$.MODULE$.filterPattern(listDatabases(), pattern);
  }

  public void dropDatabase(String db, boolean ignoreIfNotExists, boolean cascade) {
    // The names go when Spark tells that the schema went, see NameWatch.
    if (!cascade && isSchema(db)) Platform.throwException(QueryCompilationErrors.cannotDropNonemptyDatabaseError(db));
    if (own.databaseExists(db) || !isSchema(db)) super.dropDatabase(db, ignoreIfNotExists, cascade);
  }

  /** Makes a schema of the ledger one of the session's, for what only the session keeps. */
  private void adopt(String db) {
    if (!own.databaseExists(db) && isSchema(db)) own.createDatabase(schema(db), true);
  }

  // ---- tables

  public boolean tableExists(String db, String table) {
    return super.tableExists(db, table) || (named(db, table) != null && !CatalogEntries.deltaIsAddingTheName());
  }

  public CatalogTable getTable(String db, String table) {
    try {
      return super.getTable(db, table);
    } catch (Throwable missing) {
      boolean unknown = missing instanceof NoSuchTableException || missing instanceof NoSuchDatabaseException;
      Path place = unknown ? named(db, table) : null;
      if (place == null) Platform.throwException(missing);
      return CatalogEntries.delta(db, table, CatalogTableType.EXTERNAL(), place, 0);
    }
  }

  public Seq getTablesByName(String db, Seq tables) {
    List found = new ArrayList();
    Iterator wanted = CollectionConverters.asJava(tables).iterator();
    while (wanted.hasNext()) {
      String table = (String) wanted.next();
      if (tableExists(db, table)) found.add(getTable(db, table));
    }
    return CollectionConverters.asScala(found).toSeq();
  }

  public Seq listTables(String db) {
    return own.databaseExists(db) || !isSchema(db) ? together(super.listTables(db), names(db)) : together(none(), names(db));
  }

  public Seq listTables(String db, String pattern) {
    return StringUtils$.MODULE$.filterPattern(listTables(db), pattern);
  }

  public Seq listViews(String db, String pattern) {
    return own.databaseExists(db) || !isSchema(db) ? super.listViews(db, pattern) : none();
  }

  public void createTable(CatalogTable definition, boolean ignoreIfExists) {
    adopt((String) definition.identifier().database().get());
    super.createTable(definition, ignoreIfExists);
  }

  /** Whether a table has its name from the ledger alone. */
  private boolean isOnlyNamed(String db, String table) {
    return !own.tableExists(db, table) && named(db, table) != null;
  }

  public void dropTable(String db, String table, boolean ignoreIfNotExists, boolean purge) {
    // The name goes when Spark tells that the table went, see NameWatch.
    if (!isOnlyNamed(db, table)) super.dropTable(db, table, ignoreIfNotExists, purge);
  }

  public void renameTable(String db, String oldName, String newName) {
    if (!isOnlyNamed(db, oldName)) super.renameTable(db, oldName, newName);
    else if (tableExists(db, newName)) Platform.throwException(new TableAlreadyExistsException(db, newName));
  }

  public void alterTable(CatalogTable definition) {
    String db = (String) definition.identifier().database().get();
    String table = definition.identifier().table();
    if (!isOnlyNamed(db, table)) super.alterTable(definition);
    else if (!new Path(definition.location()).equals(named(db, table)))
      throw new UnsupportedOperationException(db + "." + table + " is a name of the ledger, and its table stays where it "
          + "is. Nothing was changed. Drop the name, and adopt the other table under it.");
  }

  public void alterTableDataSchema(String db, String table, StructType schema) {
    if (!isOnlyNamed(db, table)) super.alterTableDataSchema(db, table, schema);
  }

  public void alterTableSchema(String db, String table, StructType schema) {
    if (!isOnlyNamed(db, table)) super.alterTableSchema(db, table, schema);
  }

  public void alterTableStats(String db, String table, Option stats) {
    if (!isOnlyNamed(db, table)) super.alterTableStats(db, table, stats);
  }

  // ---- functions

  public void createFunction(String db, CatalogFunction definition) {
    adopt(db);
    super.createFunction(db, definition);
  }

  public boolean functionExists(String db, String name) {
    return (own.databaseExists(db) || !isSchema(db)) && super.functionExists(db, name);
  }

  public Seq listFunctions(String db, String pattern) {
    return own.databaseExists(db) || !isSchema(db) ? super.listFunctions(db, pattern) : none();
  }
}

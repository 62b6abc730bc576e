package deltaplane;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CreateTableEvent;
import org.apache.spark.sql.catalyst.catalog.DropDatabaseEvent;
import org.apache.spark.sql.catalyst.catalog.DropDatabasePreEvent;
import org.apache.spark.sql.catalyst.catalog.DropTableEvent;
import org.apache.spark.sql.catalyst.catalog.DropTablePreEvent;
import org.apache.spark.sql.catalyst.catalog.ExternalCatalog;
import org.apache.spark.sql.catalyst.catalog.ExternalCatalogEvent;
import org.apache.spark.sql.catalyst.catalog.ExternalCatalogEventListener;
import org.apache.spark.sql.catalyst.catalog.ExternalCatalogWithListener;
import org.apache.spark.sql.catalyst.catalog.RenameTableEvent;
import org.apache.spark.sql.catalyst.catalog.RenameTablePreEvent;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Follows the names of tables: one that a transaction gave has to go when it is rolled back, and a table that was
 * dropped is not managed any more, or not known by that name. Spark calls it in the thread that changes the catalog.
 */
public class NameWatch implements ExternalCatalogEventListener {
  private final ExternalCatalogWithListener catalog;
  private final ConcurrentHashMap given = new ConcurrentHashMap();
  private final ThreadLocal dropping = new ThreadLocal();
  private final ThreadLocal renaming = new ThreadLocal();

  private NameWatch(ExternalCatalogWithListener catalog) {
    this.catalog = catalog;
  }

  /** Adds a watch to a catalog, or finds the one that is there. */
  public static NameWatch install(ExternalCatalogWithListener catalog) {
    Iterator present = catalog.listeners().iterator();
    while (present.hasNext()) {
      Object listener = present.next();
      if (listener instanceof NameWatch) return (NameWatch) listener;
    }
    NameWatch watch = new NameWatch(catalog);
    catalog.addListener(watch);
    return watch;
  }

  public void onEvent(ExternalCatalogEvent event) {
    LedgerLogStore.Port port = LedgerLogStore.port();
    if (port == null) return;
    String view = LedgerLogStore.view();
    if (event instanceof CreateTableEvent && view != null) {
      CreateTableEvent made = (CreateTableEvent) event;
      given.putIfAbsent(view, new ArrayList());
      ((List) given.get(view)).add(made.database() + "\t" + made.name());
    } else if (event instanceof CreateTableEvent) {
      CreateTableEvent made = (CreateTableEvent) event;
      // While Delta adds a name, the catalog does not tell yet that it exists.
      String place = place(catalog.getTable(made.database(), made.name()));
      try {
        if (place != null) LedgerLogStore.check(port.created(place, made.database(), made.name()));
      } catch (IOException failed) {
        throw new UncheckedIOException(failed);
      }
    } else if (event instanceof DropTablePreEvent) {
      DropTablePreEvent drop = (DropTablePreEvent) event;
      dropping.set(new ArrayList());
      note(drop.database(), drop.name());
    } else if (event instanceof DropDatabasePreEvent) {
      // Spark tells nothing of the tables that go with their schema.
      dropping.set(new ArrayList());
      String database = ((DropDatabasePreEvent) event).database();
      if (!catalog.databaseExists(database)) return;
      Iterator names = CollectionConverters.asJava(catalog.listTables(database)).iterator();
      while (names.hasNext()) note(database, (String) names.next());
    } else if ((event instanceof DropTableEvent || event instanceof DropDatabaseEvent) && dropping.get() != null) {
      List places = (List) dropping.get();
      dropping.remove();
      try {
        for (int i = 0; i < places.size(); i++) {
          String[] gone = (String[]) places.get(i);
          LedgerLogStore.check(port.dropped(gone[0], gone[1], gone[2]));
        }
      } catch (IOException failed) {
        throw new UncheckedIOException(failed);
      }
    } else if (event instanceof RenameTablePreEvent) {
      RenameTablePreEvent rename = (RenameTablePreEvent) event;
      renaming.set(place(rename.database(), rename.name()));
    } else if (event instanceof RenameTableEvent && renaming.get() != null) {
      RenameTableEvent renamed = (RenameTableEvent) event;
      String place = (String) renaming.get();
      renaming.remove();
      try {
        LedgerLogStore.check(port.renamed(place, renamed.database(), renamed.name(), renamed.newName()));
      } catch (IOException failed) {
        throw new UncheckedIOException(failed);
      }
    }
  }

  /** Remembers a table that is about to go, and where it lies. */
  private void note(String database, String name) {
    String place = place(database, name);
    if (place != null) ((List) dropping.get()).add(new String[] {place, database, name});
  }

  private String place(String database, String name) {
    return place(catalog, database, name);
  }

  private static String place(ExternalCatalog catalog, String database, String name) {
    return catalog.tableExists(database, name) ? place(catalog.getTable(database, name)) : null;
  }

  private static String place(CatalogTable table) {
    return table.storage().locationUri().isEmpty() ? null : new Path(table.location()).toString();
  }

  /** The session's own catalog: a name that a view gave may lead to a table of somebody else in the ledger by now. */
  private ExternalCatalog own() {
    ExternalCatalog kept = catalog.unwrapped();
    return kept instanceof LedgerNames ? ((LedgerNames) kept).unwrapped() : kept;
  }

  /** The names that a view gave and that are still there: database, name, type and place, with tabs in between. */
  public List given(String view) {
    ExternalCatalog catalog = own();
    List found = new ArrayList();
    List names = (List) given.get(view);
    for (int i = 0; names != null && i < names.size(); i++) {
      String[] parts = ((String) names.get(i)).split("\t");
      if (!catalog.tableExists(parts[0], parts[1])) continue;
      String type = catalog.getTable(parts[0], parts[1]).tableType().name();
      String place = place(catalog, parts[0], parts[1]);
      found.add(names.get(i) + "\t" + type + "\t" + (place == null ? "" : place));
    }
    return found;
  }

  /** Takes a name back. */
  public void takeBack(String database, String name) {
    own().dropTable(database, name, true, false);
  }

  /** Forgets a view. */
  public void forget(String view) {
    given.remove(view);
  }
}

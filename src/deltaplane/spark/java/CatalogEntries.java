package deltaplane;

import java.lang.reflect.Constructor;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.catalog.CatalogStorageFormat;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTableType;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.types.StructType;
import scala.Option;

/** What catalogs of ours have to know about the entries of Delta tables. */
public class CatalogEntries {
  /**
   * A catalog entry as Delta itself writes it: no schema, no properties, since the log has them.
   * Reflection, because the number of constructor parameters changes with Spark's version; those after
   * the provider have defaults.
   */
  public static CatalogTable delta(
      String db, String table, CatalogTableType type, Path place, long created) {
    try {
      CatalogStorageFormat none = CatalogStorageFormat.empty();
      Object storage = none.copy(Option.apply(place.toUri()), none.inputFormat(), none.outputFormat(),
          none.serde(), none.compressed(), none.properties(), none.serdeName());
      Constructor constructor = CatalogTable.class.getConstructors()[0];
      Object[] values = new Object[constructor.getParameterTypes().length];
      values[0] = new TableIdentifier(table, Option.apply(db));
      values[1] = type;
      values[2] = storage;
      values[3] = new StructType();
      values[4] = Option.apply("delta");
      for (int i = 5; i < values.length; i++) {
        String method = "$lessinit$greater$default$" + (i + 1);
        values[i] = CatalogTable.class.getMethod(method, new Class[0]).invoke(null, new Object[0]);
      }
      // The default is the current time: two look-ups of one table would then differ.
      values[8] = Long.valueOf(created);
      return (CatalogTable) constructor.newInstance(values);
    } catch (Exception e) {
      throw new IllegalStateException("this Spark builds catalog entries in an unknown way", e);
    }
  }

  /**
   * Delta commits version 0 first and adds the name afterwards, through SessionCatalog.createTable, which
   * refuses a name that exists. By then the table is there. In that one call, and nowhere else, the name is
   * still to be added.
   */
  public static boolean deltaIsAddingTheName() {
    StackTraceElement[] frames = Thread.currentThread().getStackTrace();
    boolean adding = false;
    for (int i = 0; i < frames.length; i++) {
      String type = frames[i].getClassName();
      if (type.equals(SessionCatalog.class.getName()) && frames[i].getMethodName().equals("createTable"))
        adding = true;
      if (adding && type.startsWith("org.apache.spark.sql.delta.commands.CreateDeltaTable")) return true;
    }
    return false;
  }
}

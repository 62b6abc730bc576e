package deltaplane;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Iterator;
import java.util.Set;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.analysis.ResolvedTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.RenameTable;
import org.apache.spark.sql.catalyst.plans.logical.TableSpecBase;
import org.apache.spark.sql.catalyst.plans.logical.V2CreateTablePlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.delta.catalog.DeltaTableV2;
import org.apache.spark.sql.delta.commands.CreateDeltaTableCommand;
import org.apache.spark.sql.execution.command.DropTableCommand;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction1;

/**
 * Shows statements that never reach the log, or that destroy what no rollback brings back, to Python before they run.
 * Spark optimises commands like queries, so a rule of the optimiser sees each of them once.
 */
public class StatementGate extends Rule {
  private static final Set SHOWN = new HashSet(Arrays.asList(new Object[] {
      "VacuumTableCommand", "ConvertToDeltaCommand", "DropTable", "DropTableCommand", "DropView", "DropNamespace",
      "DropDatabaseCommand", "CreateNamespace", "CreateDatabaseCommand", "AlterTableDropFeature", "RenameTable",
      "AlterTableRenameCommand", "TruncateTableCommand", "CacheTable", "CacheTableAsSelect", "DeltaGenerateCommand"}));

  /** Adds the gate to a session, once, and to those that will be made from it. */
  public static void install(SparkSession spark) {
    Iterator rules = CollectionConverters.asJava(spark.experimental().extraOptimizations()).iterator();
    while (rules.hasNext()) if (rules.next() instanceof StatementGate) return;
    java.util.List all = new java.util.ArrayList(CollectionConverters.asJava(spark.experimental().extraOptimizations()));
    all.add(new StatementGate());
    spark.experimental().extraOptimizations_$eq(CollectionConverters.asScala(all).toSeq());
    spark.extensions().injectOptimizerRule(new AbstractFunction1() {
      public Object apply(Object session) {
        return new StatementGate();
      }
    });
  }

  public TreeNode apply(TreeNode tree) {
    String name = tree.getClass().getSimpleName();
    LedgerLogStore.Port port = LedgerLogStore.port();
    if (port == null) return tree;
    try {
      if (tree instanceof V2CreateTablePlan || tree instanceof CreateDeltaTableCommand) {
        if (LedgerLogStore.view() != null) LedgerLogStore.check(port.gate("CreateTable", "", LedgerLogStore.view()));
        announce(port, tree);
      }
      if (tree instanceof DropTableCommand && ((DropTableCommand) tree).isView()) name = "DropView";
      if (SHOWN.contains(name))
        LedgerLogStore.check(port.gate(name, path((LogicalPlan) tree), LedgerLogStore.view()));
    } catch (IOException failed) {
      throw new UncheckedIOException(failed);
    }
    return tree;
  }

  /** Tells of a table that is created under a name. */
  private static void announce(LedgerLogStore.Port port, Object plan) throws IOException {
    TableIdentifier name;
    Option place;
    if (plan instanceof CreateDeltaTableCommand) {
      CatalogTable table = ((CreateDeltaTableCommand) plan).table();
      name = table.identifier();
      place = table.storage().locationUri();
    } else {
      Identifier wanted = ((V2CreateTablePlan) plan).tableName();
      if (wanted.namespace().length != 1) return;
      name = new TableIdentifier(wanted.name(), Option.apply(wanted.namespace()[0]));
      Option spec = Option.apply(specification(plan));
      place = spec.isEmpty() ? spec : ((TableSpecBase) spec.get()).location();
    }
    // Tables that are named by their path have their format for a namespace.
    if (name.database().isEmpty() || new Path(name.table()).isAbsolute()) return;
    SparkSession session = (SparkSession) SparkSession.active();
    Object where = place.isEmpty() ? session.sessionState().catalog().defaultTablePath(name) : place.get();
    LedgerLogStore.check(port.creating((String) name.database().get(), name.table(), where.toString()));
  }

  private static Object specification(Object plan) {
    try {
      return plan.getClass().getMethod("tableSpec", new Class[0]).invoke(plan, new Object[0]);
    } catch (ReflectiveOperationException error) {
      throw new IllegalStateException(error);
    }
  }

  /** Where the Delta table lies that a statement is about; "" where it tells none. */
  private static String path(LogicalPlan plan) {
    Iterator children = CollectionConverters.asJava(plan.children()).iterator();
    while (children.hasNext()) {
      Object child = children.next();
      if (!(child instanceof ResolvedTable) || !(((ResolvedTable) child).table() instanceof DeltaTableV2)) continue;
      DeltaTableV2 table = (DeltaTableV2) ((ResolvedTable) child).table();
      // A new name is a new folder only where Spark has chosen the folder: this session's, or another one's.
      return plan instanceof RenameTable && !isPlacedBySpark(table) ? "" : table.path().toString();
    }
    return "";
  }

  private static boolean isPlacedBySpark(DeltaTableV2 table) {
    if (table.catalogTable().isEmpty()) return false;
    CatalogTable entry = (CatalogTable) table.catalogTable().get();
    String parent = table.path().getParent() == null ? "" : table.path().getParent().getName();
    boolean inWarehouse = table.path().getName().equals(entry.identifier().table())
        && parent.equals(entry.identifier().database().get() + ".db");
    return inWarehouse || entry.tableType().name().equals("MANAGED");
  }
}

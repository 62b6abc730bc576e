package deltaplane;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Iterator;
import java.util.Set;
import org.apache.spark.sql.catalyst.analysis.ResolvedTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.RenameTable;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.delta.catalog.DeltaTableV2;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Shows statements that never reach the log, or that destroy what no rollback brings back, to Python before they run.
 * Spark optimises commands like queries, so a rule of the optimiser sees each of them once.
 */
public class StatementGate extends Rule {
  private static final Set SHOWN = new HashSet(Arrays.asList(new Object[] {
      "VacuumTableCommand", "ConvertToDeltaCommand", "DropTable", "DropTableCommand", "DropNamespace",
      "DropDatabaseCommand", "RenameTable", "AlterTableRenameCommand", "TruncateTableCommand", "CacheTable",
      "CacheTableAsSelect"}));

  /** Adds the gate to a session, once. */
  public static void install(SparkSession spark) {
    Iterator rules = CollectionConverters.asJava(spark.experimental().extraOptimizations()).iterator();
    while (rules.hasNext()) if (rules.next() instanceof StatementGate) return;
    java.util.List all = new java.util.ArrayList(CollectionConverters.asJava(spark.experimental().extraOptimizations()));
    all.add(new StatementGate());
    spark.experimental().extraOptimizations_$eq(CollectionConverters.asScala(all).toSeq());
  }

  public TreeNode apply(TreeNode tree) {
    String name = tree.getClass().getSimpleName();
    LedgerLogStore.Port port = LedgerLogStore.port();
    if (port == null || !SHOWN.contains(name)) return tree;
    try {
      LedgerLogStore.check(port.gate(name, path((LogicalPlan) tree), LedgerLogStore.view()));
    } catch (IOException failed) {
      throw new UncheckedIOException(failed);
    }
    return tree;
  }

  /** Where the Delta table lies that a statement is about; "" where it tells none. */
  private static String path(LogicalPlan plan) {
    Iterator children = CollectionConverters.asJava(plan.children()).iterator();
    while (children.hasNext()) {
      Object child = children.next();
      if (!(child instanceof ResolvedTable) || !(((ResolvedTable) child).table() instanceof DeltaTableV2)) continue;
      DeltaTableV2 table = (DeltaTableV2) ((ResolvedTable) child).table();
      // A new name is a new folder only where Spark has chosen the folder.
      return plan instanceof RenameTable && !isPlacedBySpark(table) ? "" : table.path().toString();
    }
    return "";
  }

  private static boolean isPlacedBySpark(DeltaTableV2 table) {
    return !table.catalogTable().isEmpty()
        && ((CatalogTable) table.catalogTable().get()).tableType().name().equals("MANAGED");
  }
}

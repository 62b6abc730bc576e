package deltaplane;

import java.lang.reflect.Field;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.CacheManager;
import org.apache.spark.sql.internal.SharedState;
import org.apache.spark.storage.StorageLevel;
import scala.Function1;
import scala.Function2;
import scala.Option;
import scala.collection.immutable.Seq;

/**
 * Spark's cache of query results knows nothing of versions: what one transaction cached would be served to everybody.
 * Inside of a view nothing is cached, nothing cached is used, and nothing cached is computed anew.
 */
public class LedgerCacheManager extends CacheManager {
  /** Puts itself in the place of the session's cache, with what that one holds. */
  public static void install(SharedState state) throws Exception {
    if (state.cacheManager() instanceof LedgerCacheManager) return;
    LedgerCacheManager manager = new LedgerCacheManager();
    Field entries = CacheManager.class.getDeclaredField("cachedData");
    entries.setAccessible(true);
    entries.set(manager, entries.get(state.cacheManager()));
    Field field = SharedState.class.getDeclaredField("cacheManager");
    field.setAccessible(true);
    field.set(state, manager);
  }

  private static boolean inView() {
    return LedgerLogStore.view() != null;
  }

  private static void refuse() {
    if (inView())
      throw new UnsupportedOperationException("Nothing can be cached inside of a transaction or at a read point: Spark "
          + "would serve it to everybody. Nothing was changed. Cache it after the end, or write it to a table.");
  }

  public void cacheQuery(Dataset query) {
    refuse();
    super.cacheQuery(query);
  }

  public void cacheQuery(Dataset query, Option name, StorageLevel level) {
    refuse();
    super.cacheQuery(query, name, level);
  }

  public void cacheQuery(SparkSession spark, LogicalPlan plan, Option name, StorageLevel level) {
    refuse();
    super.cacheQuery(spark, plan, name, level);
  }

  public Option lookupCachedData(Dataset query) {
    return inView() ? Option.empty() : super.lookupCachedData(query);
  }

  public Option lookupCachedData(SparkSession spark, LogicalPlan plan) {
    return inView() ? Option.empty() : super.lookupCachedData(spark, plan);
  }

  public LogicalPlan useCachedData(LogicalPlan plan, Function1 usable) {
    return inView() ? plan : super.useCachedData(plan, usable);
  }

  public LogicalPlan useCachedData(
      LogicalPlan plan, org.apache.spark.sql.connector.catalog.transactions.Transaction transaction) {
    return inView() ? plan : super.useCachedData(plan, transaction);
  }

  public void recacheByPlan(SparkSession spark, LogicalPlan plan) {
    if (!inView()) super.recacheByPlan(spark, plan);
  }

  public void recacheTableOrView(SparkSession spark, Seq name, boolean includeTimeTravel) {
    if (!inView()) super.recacheTableOrView(spark, name, includeTimeTravel);
  }

  public Option lookupCachedTable(Seq name, Function2 sameName) {
    return inView() ? Option.empty() : super.lookupCachedTable(name, sameName);
  }

  public void recacheByPath(SparkSession spark, String path) {
    if (!inView()) super.recacheByPath(spark, path);
  }

  public void recacheByPath(SparkSession spark, Path path, FileSystem files) {
    if (!inView()) super.recacheByPath(spark, path, files);
  }
}

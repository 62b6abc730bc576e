package deltaplane;

import com.google.common.cache.Cache;
import com.google.common.cache.CacheBuilder;
import com.google.common.cache.CacheStats;
import com.google.common.cache.RemovalListener;
import com.google.common.cache.RemovalNotification;
import com.google.common.collect.ImmutableMap;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.reflect.Field;
import java.util.Iterator;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.spark.sql.delta.CapturedSnapshot;
import org.apache.spark.sql.delta.DeltaLog;
import org.apache.spark.sql.delta.DummySnapshot;
import org.apache.spark.sql.delta.Snapshot;
import org.apache.spark.sql.delta.util.JsonUtils;
import org.apache.spark.sql.delta.util.threads.DeltaThreadPool;
import scala.Option;

/**
 * The cache of Delta's logs, one for each view: Delta keeps one snapshot of a table for all threads, and would show
 * what one transaction staged to the others.
 */
public class ViewCache implements Cache {
  private static final String NO_VIEW = "";
  private static final int POOL = 8;
  private final ConcurrentHashMap views = new ConcurrentHashMap();
  private final long size;
  private final long minutes;

  private ViewCache(long size, long minutes) {
    this.size = size;
    this.minutes = minutes;
  }

  /** Puts a cache in the place of Delta's. Logs that were cached before are read anew, through the ledger. */
  public static ViewCache install(long size, long minutes) throws Exception {
    ViewCache cache = new ViewCache(size, minutes);
    Object module = Class.forName("org.apache.spark.sql.delta.DeltaLog$", true,
        DeltaLog.class.getClassLoader()).getField("MODULE$").get(null);
    Field field = module.getClass().getDeclaredField("deltaLogCache");
    field.setAccessible(true);
    synchronized (module) {
      field.set(module, scala.Option.apply(cache));
    }
    useForwardingPool();
    return cache;
  }

  /**
   * Delta updates logs that are not too old in a pool of its own. Its threads keep the view of whoever made them start:
   * they would update the log of one view with what another one sees. Those of Delta's other pools take over the view
   * of whoever gives them work.
   */
  private static void useForwardingPool() throws Exception {
    Class owner = Class.forName("org.apache.spark.sql.delta.SnapshotManagement$", true, DeltaLog.class.getClassLoader());
    Object module = owner.getField("MODULE$").get(null);
    // Made on first use, which must not come after this.
    owner.getMethod("deltaLogAsyncUpdateThreadPool", new Class[0]).invoke(module, new Object[0]);
    Field field = owner.getDeclaredField("deltaLogAsyncUpdateThreadPool");
    field.setAccessible(true);
    field.set(module, DeltaThreadPool.apply("delta-state-update", POOL));
  }

  private Cache cache() {
    String view = LedgerLogStore.view();
    String key = view == null ? NO_VIEW : view;
    Cache found = (Cache) views.get(key);
    if (found == null) {
      views.putIfAbsent(key, built());
      found = (Cache) views.get(key);
    }
    return found;
  }

  private Cache built() {
    return CacheBuilder.newBuilder().maximumSize(size).expireAfterAccess(minutes, TimeUnit.MINUTES)
        .removalListener(new RemovalListener() {
          public void onRemoval(RemovalNotification removed) {
            try {
              ((DeltaLog) removed.getValue()).unsafeVolatileSnapshot().uncache();
            } catch (NullPointerException gone) {
              return; // Spark has dropped what the snapshot held already.
            }
          }
        }).build();
  }

  /**
   * Forgets a view that has ended. DataFrames that were built in it still hold its logs: these begin anew, with what is
   * published, or a query that is cached now would serve what was rolled back to everybody.
   */
  public void drop(String view) {
    Cache gone = (Cache) views.remove(view);
    if (gone == null) return;
    Object[] logs = gone.asMap().values().toArray();
    gone.invalidateAll();
    for (int i = 0; i < logs.length; i++) {
      DeltaLog log = (DeltaLog) logs[i];
      log.currentSnapshot_$eq(new CapturedSnapshot(new DummySnapshot(log.logPath(), log), 0));
    }
  }

  /**
   * What Delta would have written as the checksum of a table's newest version in a view: the version, a tab and the
   * text; null where Delta has not computed it.
   */
  public String checksum(String view, String log) {
    Cache logs = (Cache) views.get(view);
    if (logs == null) return null;
    Iterator entries = logs.asMap().entrySet().iterator();
    while (entries.hasNext()) {
      Map.Entry entry = (Map.Entry) entries.next();
      if (!path(entry.getKey()).toString().equals(log)) continue;
      Snapshot snapshot = ((DeltaLog) entry.getValue()).unsafeVolatileSnapshot();
      Option checksum = snapshot.checksumOpt();
      try {
        return checksum.isEmpty() ? null
            : snapshot.version() + "\t" + JsonUtils.mapper().writeValueAsString(checksum.get());
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
    }
    return null;
  }

  public Object getIfPresent(Object key) {
    return cache().getIfPresent(key);
  }

  public Object get(Object key, Callable loader) throws ExecutionException {
    return cache().get(key, loader);
  }

  private static Object path(Object key) {
    try {
      return key.getClass().getMethod("path", new Class[0]).invoke(key, new Object[0]);
    } catch (ReflectiveOperationException error) {
      throw new IllegalStateException(error);
    }
  }

  public ImmutableMap getAllPresent(Iterable keys) {
    return cache().getAllPresent(keys);
  }

  public void put(Object key, Object value) {
    cache().put(key, value);
  }

  public void putAll(Map all) {
    cache().putAll(all);
  }

  public void invalidate(Object key) {
    cache().invalidate(key);
  }

  public void invalidateAll(Iterable keys) {
    cache().invalidateAll(keys);
  }

  public void invalidateAll() {
    cache().invalidateAll();
  }

  public long size() {
    return cache().size();
  }

  public CacheStats stats() {
    return cache().stats();
  }

  public ConcurrentMap asMap() {
    return cache().asMap();
  }

  public void cleanUp() {
    cache().cleanUp();
  }
}

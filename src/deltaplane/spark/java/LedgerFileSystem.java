package deltaplane;

import java.io.FileNotFoundException;
import java.io.IOException;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;

/**
 * The file system that served the scheme before, with one difference: asked for a commit that a transaction staged, or
 * that is ratified and not yet published, it answers with the file that holds it. Delta asks right after a commit. In a
 * task it does so for version 0 alone, which Delta insists to call by its final name.
 */
public class %(name)s extends %(parent)s {
  public %(name)s() throws Exception {
    super();
  }

  private static boolean asks(Path path) {
    return LedgerLogStore.port() != null && LedgerLogStore.isCommit(path);
  }

  public FileStatus getFileStatus(Path path) throws IOException {
    if (!asks(path)) return super.getFileStatus(path);
    if (LedgerLogStore.view() != null) {
      // A transaction sees what it staged, also where somebody else has published the same version meanwhile.
      String staged = LedgerLogStore.find(path);
      return staged == null ? super.getFileStatus(path) : LedgerLogStore.status(staged);
    }
    try {
      return super.getFileStatus(path);
    } catch (FileNotFoundException missing) {
      String ratified = LedgerLogStore.find(path);
      return ratified == null ? super.getFileStatus(path) : LedgerLogStore.status(ratified);
    }
  }

  public FSDataInputStream open(Path path, int bufferSize) throws IOException {
    Path first = LedgerLogStore.first(path);
    if (first != null && exists(first)) return super.open(first, bufferSize);
    String staged = asks(path) && LedgerLogStore.view() != null ? LedgerLogStore.find(path) : null;
    return super.open(staged == null ? path : LedgerLogStore.content(staged), bufferSize);
  }
}

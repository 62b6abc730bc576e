package deltaplane.tests;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.net.HttpURLConnection;
import java.net.URI;
import java.net.URL;
import java.net.URLEncoder;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/**
 * Hadoop's view of a bucket on an S3 server that checks no signature. Like S3A it has no folders, no rename that
 * happens at once, and no file before it is closed.
 */
public class StoreFileSystem extends FileSystem {
  private static final Pattern ENTRY = Pattern.compile(
      "<Contents>.*?<Key>(.*?)</Key>.*?<LastModified>(.*?)</LastModified>.*?<Size>(\\d+)</Size>.*?</Contents>"
      + "|<CommonPrefixes>\\s*<Prefix>(.*?)</Prefix>", Pattern.DOTALL);
  private URI uri;
  private String bucket;

  public void initialize(URI name, Configuration conf) throws IOException {
    super.initialize(name, conf);
    setConf(conf);
    uri = URI.create(name.getScheme() + "://" + name.getAuthority());
    bucket = conf.get("test.store.endpoint") + "/" + name.getAuthority();
  }

  public URI getUri() {
    return uri;
  }

  private static String key(Path path) {
    String whole = path.toUri().getPath();
    return whole.startsWith("/") ? whole.substring(1) : whole;
  }

  private static String encoded(String text) throws IOException {
    return URLEncoder.encode(text, "UTF-8").replace("+", "%20");
  }

  private HttpURLConnection call(String method, String place) throws IOException {
    HttpURLConnection call = (HttpURLConnection) new URL(bucket + place).openConnection();
    call.setRequestMethod(method);
    call.setRequestProperty("Authorization",
        "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=none");
    return call;
  }

  private static byte[] bytes(InputStream from) throws IOException {
    ByteArrayOutputStream all = new ByteArrayOutputStream();
    byte[] part = new byte[1 << 16];
    for (int read = from.read(part); read >= 0; read = from.read(part)) all.write(part, 0, read);
    from.close();
    return all.toByteArray();
  }

  private byte[] get(Path path) throws IOException {
    HttpURLConnection call = call("GET", "/" + encoded(key(path)));
    if (call.getResponseCode() == 404) throw new FileNotFoundException(path.toString());
    return bytes(call.getInputStream());
  }

  private void put(Path path, byte[] content) throws IOException {
    HttpURLConnection call = call("PUT", "/" + encoded(key(path)));
    call.setDoOutput(true);
    call.getOutputStream().write(content);
    if (call.getResponseCode() != 200) throw new IOException("PUT " + path + ": " + call.getResponseCode());
  }

  private void remove(Path path) throws IOException {
    call("DELETE", "/" + encoded(key(path))).getResponseCode();
  }

  /** The entries below a prefix; with a delimiter only those directly below. */
  private List entries(String prefix, boolean direct) throws IOException {
    HttpURLConnection call = call("GET", "?list-type=2&max-keys=1000&prefix=" + encoded(prefix)
        + (direct ? "&delimiter=%2F" : ""));
    String answer = new String(bytes(call.getInputStream()), "UTF-8");
    if (answer.contains("<IsTruncated>true")) throw new IOException("more than a test should hold: " + prefix);
    List found = new ArrayList();
    Matcher entry = ENTRY.matcher(answer);
    while (entry.find()) {
      if (entry.group(4) != null) {
        found.add(new FileStatus(0, true, 1, 1, 0, at(entry.group(4))));
      } else {
        long time = Instant.parse(entry.group(2)).toEpochMilli();
        found.add(new FileStatus(Long.parseLong(entry.group(3)), false, 1, 1 << 25, time, at(entry.group(1))));
      }
    }
    return found;
  }

  private Path at(String key) {
    String plain = key.replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    return new Path(uri.getScheme(), uri.getAuthority(), "/" + (plain.endsWith("/") ? plain.substring(0, plain.length() - 1) : plain));
  }

  public FileStatus getFileStatus(Path given) throws IOException {
    Path path = makeQualified(given);
    if (key(path).isEmpty()) return new FileStatus(0, true, 1, 1, 0, path);
    HttpURLConnection call = call("HEAD", "/" + encoded(key(path)));
    if (call.getResponseCode() == 200)
      return new FileStatus(call.getContentLengthLong(), false, 1, 1 << 25, call.getLastModified(), path);
    if (entries(key(path) + "/", true).isEmpty()) throw new FileNotFoundException(path.toString());
    return new FileStatus(0, true, 1, 1, 0, path);
  }

  public FileStatus[] listStatus(Path given) throws IOException {
    FileStatus status = getFileStatus(given);
    if (!status.isDirectory()) return new FileStatus[] {status};
    String prefix = key(status.getPath());
    List found = entries(prefix.isEmpty() ? "" : prefix + "/", true);
    return (FileStatus[]) found.toArray(new FileStatus[0]);
  }

  public FSDataInputStream open(Path path, int bufferSize) throws IOException {
    return new FSDataInputStream(new Content(get(path)));
  }

  private static class Content extends FSInputStream {
    private final byte[] content;
    private int position;

    Content(byte[] content) {
      this.content = content;
    }

    public void seek(long to) throws IOException {
      if (to > content.length) throw new EOFException();
      position = (int) to;
    }

    public long getPos() {
      return position;
    }

    public boolean seekToNewSource(long to) {
      return false;
    }

    public int read() {
      return position < content.length ? content[position++] & 0xff : -1;
    }

    public int read(byte[] into, int offset, int length) {
      if (length == 0) return 0;
      if (position >= content.length) return -1;
      int count = Math.min(length, content.length - position);
      System.arraycopy(content, position, into, offset, count);
      position += count;
      return count;
    }
  }

  public FSDataOutputStream create(Path path, FsPermission permission, boolean overwrite, int bufferSize,
      short replication, long blockSize, Progressable progress) throws IOException {
    if (!overwrite && exists(path)) throw new FileAlreadyExistsException(path.toString());
    return new FSDataOutputStream(new Upload(this, path), null);
  }

  private static class Upload extends ByteArrayOutputStream {
    private final StoreFileSystem store;
    private final Path path;
    private boolean closed;

    Upload(StoreFileSystem store, Path path) {
      this.store = store;
      this.path = path;
    }

    public void close() throws IOException {
      if (!closed) store.put(path, toByteArray());
      closed = true;
    }
  }

  public FSDataOutputStream append(Path path, int bufferSize, Progressable progress) throws IOException {
    throw new UnsupportedOperationException("append");
  }

  public boolean rename(Path from, Path to) throws IOException {
    List inside = entries(key(makeQualified(from)) + "/", false);
    for (int i = 0; i < inside.size(); i++) {
      Path one = ((FileStatus) inside.get(i)).getPath();
      put(new Path(to + one.toString().substring(makeQualified(from).toString().length())), get(one));
      remove(one);
    }
    if (!inside.isEmpty()) return true;
    put(to, get(from));
    remove(from);
    return true;
  }

  public boolean delete(Path path, boolean recursive) throws IOException {
    List inside = entries(key(makeQualified(path)) + "/", false);
    for (int i = 0; i < inside.size(); i++) remove(((FileStatus) inside.get(i)).getPath());
    boolean existed = exists(path);
    remove(path);
    return existed || !inside.isEmpty();
  }

  public boolean mkdirs(Path path, FsPermission permission) {
    return true;
  }

  public void setWorkingDirectory(Path path) {}

  public Path getWorkingDirectory() {
    return new Path(uri.getScheme(), uri.getAuthority(), "/");
  }
}

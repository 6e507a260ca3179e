package bench;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;

/**
 * Runs a file of SQL with one INSERT in a local mini cluster, until it is killed. The settings are those of FlinkApp;
 * MINI_BATCH_MS sets mini-batches of this latency and 50,000 rows, with two-phase aggregation and split DISTINCT.
 */
public final class SqlApp {
  public static void main(String[] args) throws Exception {
    Configuration c = FlinkApp.configuration();
    StreamExecutionEnvironment e =
        StreamExecutionEnvironment.createLocalEnvironment(Integer.parseInt(FlinkApp.env("PARALLELISM", "2")), c);
    StreamTableEnvironment t = StreamTableEnvironment.create(e);
    String batch = FlinkApp.env("MINI_BATCH_MS", "");
    if (!batch.isEmpty()) {
      t.getConfig().set("table.exec.mini-batch.enabled", "true");
      t.getConfig().set("table.exec.mini-batch.allow-latency", batch + " ms");
      t.getConfig().set("table.exec.mini-batch.size", "50000");
      t.getConfig().set("table.optimizer.agg-phase-strategy", "TWO_PHASE");
      t.getConfig().set("table.optimizer.distinct-agg.split.enabled", "true");
    }
    Pattern set = Pattern.compile("SET\\s+'([^']*)'\\s*=\\s*'([^']*)'");
    for (String s : statements(Files.readString(Path.of(args[0])))) {
      Matcher m = set.matcher(s);
      if (m.matches()) {
        t.getConfig().set(m.group(1), m.group(2));
      } else {
        t.executeSql(s).await(); // of an INSERT: for ever, or until the job has failed
      }
    }
  }

  /** The statements of a script without its comments, with the value of the environment for each ${NAME}. */
  static List<String> statements(String script) {
    List<String> all = new ArrayList<>();
    StringBuilder one = new StringBuilder();
    Matcher m = Pattern.compile("--[^\\n]*|'(?:[^']|'')*'|`[^`]*`|;|[^-'`;]+|-").matcher(script);
    while (m.find()) {
      String token = m.group();
      if (token.equals(";")) {
        all.add(one.toString().strip());
        one.setLength(0);
      } else if (!token.startsWith("--")) {
        one.append(Pattern.compile("\\$\\{(\\w+)}").matcher(token)
            .replaceAll(r -> Matcher.quoteReplacement(FlinkApp.env(r.group(1), ""))));
      }
    }
    return all;
  }
}

package org.apache.livy.repl;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Base64;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.livy.rsc.driver.SparkEntries;
import org.apache.spark.SparkConf;
import py4j.GatewayServer;

/**
 * The Python process that runs the session's code (child.py). Statements are lines of JSON over its standard input and
 * output, one at a time; a side-channel job is a connection of its own, so that it runs beside a statement.
 */
final class PythonChild {
  private static final ObjectMapper JSON = new ObjectMapper();

  private final String secret = UUID.randomUUID().toString();
  private final GatewayServer gateway;
  private final Process process;
  private final OutputStream requests;
  private final BufferedReader replies;
  private final int jobPort;
  private volatile boolean broken = false;

  PythonChild(SparkEntries entries, SparkConf conf) throws IOException {
    InetAddress loopback = InetAddress.getLoopbackAddress();
    gateway = new GatewayServer.GatewayServerBuilder()
        .entryPoint(entries).authToken(secret).javaAddress(loopback).javaPort(0)
        .callbackClient(GatewayServer.DEFAULT_PYTHON_PORT, loopback, secret) // as in Livy: foreachBatch calls Python
        .build();
    gateway.start();

    String python = conf.get("spark.pyspark.python", System.getenv().getOrDefault("PYSPARK_PYTHON", "python3"));
    ProcessBuilder builder = new ProcessBuilder(python, "-u", script().toString());
    Map<String, String> environment = builder.environment();
    environment.put("PYTHONPATH", pythonPath(environment));
    environment.put("PYSPARK_PYTHON", python); // as in Livy: PySpark has executors start it, too
    environment.put("PYSPARK_GATEWAY_PORT", String.valueOf(gateway.getListeningPort()));
    environment.put("PYSPARK_GATEWAY_SECRET", secret);
    environment.put("PYSPARK_PIN_THREAD", "false"); // as in Livy: job groups belong to the JVM's threads, not Python's
    builder.redirectError(ProcessBuilder.Redirect.INHERIT);
    process = builder.start();
    requests = process.getOutputStream();
    replies = new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
    String ready = replies.readLine();
    if (ready == null) {
      throw new IOException("the session's Python ended while it started: see the log");
    }
    jobPort = JSON.readTree(ready).get("port").asInt();
  }

  private static Path script() throws IOException {
    Path script = Files.createTempFile("livy-child-", ".py");
    script.toFile().deleteOnExit();
    try (InputStream source = PythonChild.class.getResourceAsStream("/child.py")) {
      Files.copy(source, script, StandardCopyOption.REPLACE_EXISTING);
    }
    return script;
  }

  private static String pythonPath(Map<String, String> environment) throws IOException {
    Path library = new File(environment.get("SPARK_HOME"), "python/lib").toPath();
    try (Stream<Path> files = Files.list(library)) {
      String spark = files.map(Path::toString).filter(name -> name.endsWith(".zip")).sorted()
          .collect(Collectors.joining(File.pathSeparator));
      String given = environment.get("PYTHONPATH");
      return given == null ? spark : spark + File.pathSeparator + given;
    }
  }

  boolean isAlive() {
    return !broken && process.isAlive();
  }

  /** The statement's output as JSON text. Anything but JSON from the child ends the session, as with Livy's own. */
  String run(int id, String code, String kind) {
    if (kind != null && !"pyspark".equals(kind)) {
      return failure(id, "NotImplementedError", "this session runs pyspark, not " + kind);
    }
    try {
      ObjectNode request = JSON.createObjectNode().put("id", id).put("code", code);
      requests.write((JSON.writeValueAsString(request) + "\n").getBytes(StandardCharsets.UTF_8));
      requests.flush();
      String reply = replies.readLine();
      if (reply != null && JSON.readTree(reply).has("status")) {
        return reply;
      }
      broken = true;
      return failure(id, "Error", "the session's Python has ended");
    } catch (IOException e) {
      broken = true;
      return failure(id, "Error", "the session's Python has ended: " + e);
    }
  }

  private static String failure(int id, String name, String value) {
    ObjectNode output = JSON.createObjectNode();
    output.put("status", "error").put("execution_count", id).put("ename", name).put("evalue", value);
    output.putArray("traceback");
    return output.toString();
  }

  /** Runs a pickled job in the child, beside whatever statement runs; the answer is base64 of the pickled value. */
  byte[] job(byte[] pickled) throws IOException {
    try (Socket socket = new Socket(InetAddress.getLoopbackAddress(), jobPort)) {
      String request = secret + "\n" + Base64.getEncoder().encodeToString(pickled) + "\n";
      socket.getOutputStream().write(request.getBytes(StandardCharsets.US_ASCII));
      String reply =
          new BufferedReader(new InputStreamReader(socket.getInputStream(), StandardCharsets.US_ASCII)).readLine();
      if (reply == null) {
        throw new IOException("the session's Python has ended");
      }
      String value = reply.substring(reply.indexOf(' ') + 1);
      if (reply.startsWith("ok ")) {
        return value.getBytes(StandardCharsets.US_ASCII);
      }
      throw new RuntimeException(new String(Base64.getDecoder().decode(value), StandardCharsets.UTF_8));
    }
  }

  void close() {
    process.destroy();
    try {
      if (!process.waitFor(2, TimeUnit.SECONDS)) {
        process.destroyForcibly();
      }
    } catch (InterruptedException e) {
      process.destroyForcibly();
    }
    gateway.shutdown();
  }
}

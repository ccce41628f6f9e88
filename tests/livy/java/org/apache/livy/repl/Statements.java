package org.apache.livy.repl;

import java.util.ArrayList;
import java.util.List;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.RejectedExecutionException;
import java.util.function.Consumer;
import org.apache.livy.rsc.driver.Statement;
import org.apache.livy.rsc.driver.StatementState;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkJobInfo;
import org.apache.spark.SparkStageInfo;
import org.apache.spark.SparkStatusTracker;

/** The statements of a session: first in, first out, on one thread; the newest hundred are kept. */
final class Statements {
  private static final int RETAINED = 100;
  private static final long CANCEL_EVERY_MS = 100;
  private static final long CANCEL_BY_FORCE_AFTER_MS = 30_000;

  private final SparkContext spark;
  private final PythonChild python;
  private final Consumer<String> announce;
  private final TreeMap<Integer, Statement> byId = new TreeMap<>(); // guarded by itself, as are the counts
  private int next = 0;
  private int unfinished = 0;
  private final ExecutorService runner = Executors.newSingleThreadExecutor(Statements::daemon);

  Statements(SparkContext spark, PythonChild python, Consumer<String> announce) {
    this.spark = spark;
    this.python = python;
    this.announce = announce;
  }

  private static Thread daemon(Runnable work) {
    Thread thread = new Thread(work, "statements");
    thread.setDaemon(true);
    return thread;
  }

  int add(String code, String kind) {
    Statement statement;
    synchronized (byId) {
      statement = new Statement(next++, code, StatementState.Waiting, null);
      byId.put(statement.id, statement);
      unfinished++;
      if (byId.size() > RETAINED) {
        byId.pollFirstEntry();
      }
    }
    try {
      runner.execute(() -> run(statement, kind));
    } catch (RejectedExecutionException e) {
      throw new IllegalStateException("Session is shutting down", e);
    }
    return statement.id;
  }

  private void run(Statement statement, String kind) {
    announce.accept("busy");
    if (statement.compareAndTransit(StatementState.Waiting, StatementState.Running)) {
      statement.started = System.currentTimeMillis();
      statement.output = python.run(statement.id, statement.code, kind);
      statement.completed = System.currentTimeMillis();
      statement.progress = 1.0;
      statement.compareAndTransit(StatementState.Running, StatementState.Available);
      statement.compareAndTransit(StatementState.Cancelling, StatementState.Cancelled);
    }
    boolean last;
    synchronized (byId) {
      last = --unfinished == 0;
    }
    if (!python.isAlive()) {
      announce.accept("error");
    } else if (last) {
      announce.accept("idle");
    }
  }

  Statement[] all() {
    return range(0, Integer.MAX_VALUE);
  }

  Statement[] range(int from, int size) {
    List<Statement> found;
    synchronized (byId) {
      int end = size > Integer.MAX_VALUE - from ? Integer.MAX_VALUE : from + size;
      found = new ArrayList<>(byId.subMap(from, end).values());
    }
    for (Statement statement : found) {
      if (statement.state.get() == StatementState.Running) {
        statement.progress = progress(statement.id);
      }
    }
    return found.toArray(new Statement[0]);
  }

  /** Finished tasks by all tasks, of the stages of the statement's Spark jobs. */
  private double progress(int id) {
    SparkStatusTracker tracker = spark.statusTracker();
    double all = 0;
    double finished = 0;
    for (int jobId : tracker.getJobIdsForGroup(String.valueOf(id))) {
      scala.Option<SparkJobInfo> job = tracker.getJobInfo(jobId);
      for (int stageId : job.isDefined() ? job.get().stageIds() : new int[0]) {
        scala.Option<SparkStageInfo> stage = tracker.getStageInfo(stageId);
        if (stage.isDefined()) {
          all += stage.get().numTasks();
          finished += stage.get().numCompletedTasks();
        }
      }
    }
    return all == 0 ? 0.0 : finished / all;
  }

  void cancel(int id) {
    Statement statement;
    synchronized (byId) {
      statement = byId.get(id);
    }
    if (statement == null || statement.compareAndTransit(StatementState.Waiting, StatementState.Cancelled)) {
      return;
    }
    if (statement.compareAndTransit(StatementState.Running, StatementState.Cancelling)) {
      daemon(() -> cancelUntilItEnds(statement)).start(); // the caller's thread is the RPC's: it must not wait
    }
  }

  private void cancelUntilItEnds(Statement statement) {
    long deadline = System.currentTimeMillis() + CANCEL_BY_FORCE_AFTER_MS;
    while (statement.state.get() == StatementState.Cancelling) {
      if (System.currentTimeMillis() > deadline) {
        statement.compareAndTransit(StatementState.Cancelling, StatementState.Cancelled);
        return;
      }
      spark.cancelJobGroup(String.valueOf(statement.id));
      try {
        Thread.sleep(CANCEL_EVERY_MS);
      } catch (InterruptedException e) {
        return;
      }
    }
  }

  void close() {
    runner.shutdownNow();
  }
}

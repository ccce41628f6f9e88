package org.apache.livy.repl;

import io.netty.channel.ChannelHandlerContext;
import org.apache.livy.rsc.BaseProtocol;
import org.apache.livy.rsc.RSCConf;
import org.apache.livy.rsc.ReplJobResults;
import org.apache.livy.rsc.driver.BypassJobWrapper;
import org.apache.livy.rsc.driver.RSCDriver;
import org.apache.livy.rsc.driver.SparkEntries;
import org.apache.livy.rsc.driver.Statement;
import org.apache.livy.rsc.rpc.Rpc;
import org.apache.spark.SparkConf;

/**
 * What Livy's server talks to in the driver of an interactive session: it answers the server's messages, and hands
 * statements and side-channel jobs to the Python child. The server asks for this class by its name.
 */
public class ReplDriver extends RSCDriver {
  private volatile String state = "not_started";
  private volatile Statements statements;
  private volatile PythonChild python;

  public ReplDriver(SparkConf conf, RSCConf livyConf) throws Exception {
    super(conf, livyConf);
  }

  @Override
  protected SparkEntries initializeSparkEntries() throws Exception {
    announce("starting");
    try {
      SparkEntries entries = new SparkEntries(conf);
      entries.sc();
      python = new PythonChild(entries, conf);
      statements = new Statements(entries.sc().sc(), python, this::announce);
      announce("idle");
      return entries;
    } catch (Exception e) {
      announce("error");
      throw e;
    }
  }

  private void announce(String now) {
    state = now;
    broadcast(new ReplState(now));
  }

  /** A client that comes late must hear the state, or the server shows "busy" for ever. */
  @Override
  protected void onClientAuthenticated(Rpc client) {
    client.call(new ReplState(state));
  }

  @Override
  protected void shutdownContext() {
    if (statements != null) {
      statements.close();
    }
    if (python != null) {
      python.close();
    }
    super.shutdownContext();
  }

  @Override
  protected BypassJobWrapper createWrapper(BaseProtocol.BypassJobRequest message) throws Exception {
    if (!"pyspark".equals(message.jobType)) {
      return super.createWrapper(message);
    }
    return new BypassJobWrapper(this, message.id, context -> python.job(message.serializedJob));
  }

  public Integer handle(ChannelHandlerContext ctx, BaseProtocol.ReplJobRequest message) {
    return started().add(message.code, message.codeType);
  }

  public ReplJobResults handle(ChannelHandlerContext ctx, BaseProtocol.GetReplJobResults message) {
    Statement[] found = message.allResults ? started().all() : started().range(message.from, message.size);
    return new ReplJobResults(found);
  }

  public void handle(ChannelHandlerContext ctx, BaseProtocol.CancelReplJobRequest message) {
    started().cancel(message.id);
  }

  public String[] handle(ChannelHandlerContext ctx, BaseProtocol.ReplCompleteRequest message) {
    return new String[0];
  }

  private Statements started() {
    if (statements == null) {
      throw new IllegalStateException("Session is in state " + state);
    }
    return statements;
  }
}

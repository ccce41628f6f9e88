"""The Python of a Livy session: reads statements from standard input, answers each with one line of JSON.

Side-channel jobs come over sockets, each in a thread of its own, while a statement may be running. Where it is odd, it
is as odd as Livy 0.7.1: what works here must work there. Runs from a jar, in the cluster's Python.
"""

import ast
import base64
import hmac
import io
import json
import os
import pickle
import socketserver
import sys
import threading
import traceback

#: Livy 0.7.1 builds its syntax trees as Python 3.7 had them; LIVY_RIG_MULTI_STATEMENTS=1 in the server's environment
#: lets a statement be of any length, as Livy 0.8 does.
ONE_TOP_LEVEL_STATEMENT = os.environ.get("LIVY_RIG_MULTI_STATEMENTS") != "1"


class Session:
    """The context that side-channel jobs are called with."""

    def __init__(self):
        from pyspark import SparkConf, SparkContext
        from pyspark.java_gateway import launch_gateway
        from pyspark.sql import SparkSession, SQLContext

        gateway = launch_gateway()
        jsc = gateway.entry_point.sc()
        self.sc = SparkContext(jsc=jsc, gateway=gateway, conf=SparkConf(_jvm=gateway.jvm, _jconf=jsc.getConf()))
        self.spark_session = SparkSession(self.sc, gateway.entry_point.sparkSession())
        # No __name__ of its own, so that it reads "builtins".
        self.names = {"sc": self.sc, "spark": self.spark_session, "sqlContext": SQLContext(self.sc, self.spark_session)}


def fresh_output():
    """New stdout and stderr, the old ones closed: a thread that still prints to them loses what it prints."""
    sys.stdout.close()
    sys.stderr.close()
    sys.stdout, sys.stderr = io.StringIO(), io.StringIO()


def execute(code, names):
    """Run `code`; return the `data` of its output: what it printed and the echo of its last expression."""
    if code.rstrip().rpartition("\n")[2].startswith("%json "):
        code, _, magic = code.rstrip().rpartition("\n")
        run(code, names)
        return {"application/json": eval(magic[len("%json ") :], names)}
    echo = run(code, names)
    return {"text/plain": (sys.stdout.getvalue() + sys.stderr.getvalue() + echo).rstrip()}


def run(code, names):
    """Execute the code's statements; return the repr of a last expression that is not None, else nothing."""
    body = ast.parse(code).body
    if len(body) > 1 and ONE_TOP_LEVEL_STATEMENT:
        raise TypeError('required field "type_ignores" missing from Module')
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "<stdin>", "exec"), names)
    if last is None:
        return ""
    value = eval(compile(ast.Expression(last.value), "<stdin>", "eval"), names)
    return "" if value is None else repr(value)


def answer(request, session):
    """The output of a statement. What a `%json` cannot put in JSON is not caught here: it ends the child."""
    fresh_output()
    count = request["id"]
    try:
        session.sc.setJobGroup(str(count), f"Job group for statement {count}")
        output = {"status": "ok", "execution_count": count, "data": execute(request["code"], session.names)}
    except BaseException as error:  # SystemExit and KeyboardInterrupt too: a session outlives its statements
        output = {
            "status": "error",
            "execution_count": count,
            "ename": type(error).__name__,
            "evalue": str(error),
            "traceback": traceback.format_exception(type(error), error, users_frames(error.__traceback__)),
        }
    fresh_output()
    return output


def users_frames(trace):
    """The traceback from the session's code on: what is above it is this file."""
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace


class Job(socketserver.StreamRequestHandler):
    """A side-channel job: the secret, the pickled callable; then "ok" or "error" and base64."""

    def handle(self):
        secret = self.rfile.readline().strip()
        if not hmac.compare_digest(secret, self.server.secret):
            return
        try:
            from pyspark import cloudpickle

            job = pickle.loads(base64.b64decode(self.rfile.readline()), encoding="bytes")
            reply = b"ok " + base64.b64encode(cloudpickle.dumps(job(self.server.session)))
        except BaseException:
            reply = b"error " + base64.b64encode(b"Client job error:" + traceback.format_exc().encode())
        self.wfile.write(reply + b"\n")


class Jobs(socketserver.ThreadingTCPServer):
    """Where side-channel jobs arrive."""

    daemon_threads = True


def main():
    """Serve statements until standard input ends, which it does with the driver."""
    requests, replies = sys.stdin, sys.stdout
    sys.stdin, sys.stdout = io.StringIO(), io.StringIO()
    session = Session()  # what goes wrong here is in the driver's log
    sys.stderr = io.StringIO()
    jobs = Jobs(("127.0.0.1", 0), Job)
    jobs.session, jobs.secret = session, os.environ["PYSPARK_GATEWAY_SECRET"].encode()
    threading.Thread(target=jobs.serve_forever, daemon=True).start()
    replies.write(json.dumps({"port": jobs.server_address[1]}) + "\n")
    replies.flush()
    for line in requests:
        replies.write(json.dumps(answer(json.loads(line), session)) + "\n")
        replies.flush()


if __name__ == "__main__":
    main()

"""Stand-ins for services with Livy's interface, in front of a Livy that does the work: they answer as documented.

None is the service. Each class says what its documents say, and what they leave open and we have assumed. A stand-in
knows the requests that the documents list, and answers any other one as it answers unknown paths.
"""

import json
import re
import urllib.error
import urllib.request
import uuid
from types import MappingProxyType

from support.stand_ins import Handler, StandIn

_SESSIONS = MappingProxyType(
    {
        "GET /sessions": "list",
        "POST /sessions": "create",
        "GET /sessions/ID": "describe",
        "DELETE /sessions/ID": "delete",
        "POST /sessions/ID/statements": "post",
        "GET /sessions/ID/statements/ID": "statement",
        "POST /sessions/ID/statements/ID/cancel": "cancel",
    }
)


class LookAlike(StandIn):
    """`upstream`: the URL of the Livy. `seen`: (method, path, headers, body) of each request.

    `lost` is how many answers to requests for a session are lost after the session was made; `refused` has answers
    (status, headers) that are given once each, before anything is done.
    """

    prefix = ""
    #: The requests that are documented.
    requests = _SESSIONS
    created = 201

    def __init__(self, upstream):
        self.upstream = upstream
        self.refused, self.lost = [], 0
        self.ids = {}  # the upstream's number of each session, by the id that clients know
        self.statements = {}
        super().__init__(_Handler)
        self.url += self.prefix

    # What a service does its own way

    def admits(self, headers):
        """None, or the (status, JSON) of a request without the credentials that are documented."""

    def problem(self, action, body):
        """What is wrong with the body of a request: fields that are unknown or missing."""

    def new_id(self, number):
        return str(uuid.uuid4())

    def shown(self, key, session):
        """A session as the service describes it, from Livy's description."""
        return {**session, "id": key}

    def shown_list(self, sessions, headers):
        return {"from": 0, "total": len(sessions), "sessions": sessions}

    def shown_statement(self, key, statement):
        return {**statement, "id": key}

    def error(self, status, message, path):
        return {"msg": message}

    # What all do alike

    def answer(self, method, path, headers, body):
        """(status, JSON) of a request; (None, None) for an answer that is lost."""
        refusal = self.admits(headers)
        if refusal:
            return refusal
        if not path.startswith(self.prefix + "/"):
            return 404, self.error(404, "Not Found", path)
        rest = path.removeprefix(self.prefix).partition("?")[0]
        form = re.sub(r"(?<=/sessions/)[^/]+|(?<=/statements/)[^/]+", "ID", rest)
        action, parts = self.requests.get(f"{method} {form}"), rest.split("/")
        key = parts[2] if len(parts) > 2 else None
        if action is None or (key is not None and key not in self.ids):
            return 404, self.error(404, "Not Found", path)
        problem = self.problem(action, body or {})
        if problem:
            return 400, self.error(400, problem, path)
        return getattr(self, action)(*parts[2::2], headers=headers, body=body, path=path)

    def list(self, headers, **more):
        known = {str(session["id"]): session for session in self.ask("GET", "/sessions?size=1000")[1]["sessions"]}
        alive = [self.shown(key, known[number]) for key, number in self.ids.items() if number in known]
        return 200, self.shown_list(alive, headers)

    def create(self, body, **more):
        about = {
            key: value for key, value in body.items() if key in ("name", "executorMemory", "heartbeatTimeoutInSecond")
        }
        status, session = self.ask("POST", "/sessions", {"kind": "pyspark", **about})
        assert status == 201, session
        key = self.new_id(session["id"])
        self.ids[key] = str(session["id"])
        if self.lost:
            self.lost -= 1
            return None, None
        return self.created, self.shown(key, session)

    def describe(self, key, path, **more):
        status, session = self.ask("GET", f"/sessions/{self.ids[key]}")
        if status == 404:
            return 404, self.error(404, "Not Found", path)
        return status, self.shown(key, session)

    def delete(self, key, **more):
        return self.ask("DELETE", f"/sessions/{self.ids[key]}")[0], {}

    def post(self, key, body, path, **more):
        status, statement = self.ask("POST", f"/sessions/{self.ids[key]}/statements", {"code": body["code"]})
        if status == 404:
            return 404, self.error(404, "Not Found", path)
        own = self.statement_id(statement["id"])
        self.statements[key, str(own)] = statement["id"]
        return 201, self.shown_statement(own, statement)

    def statement_id(self, number):
        return number

    def statement(self, key, own, **more):
        status, statement = self.ask("GET", f"/sessions/{self.ids[key]}/statements/{self.statements[key, own]}")
        return status, self.shown_statement(own, statement) if status == 200 else statement

    def cancel(self, key, own, **more):
        path = f"/sessions/{self.ids[key]}/statements/{self.statements[key, own]}/cancel"
        return self.ask("POST", path, {})[0], {"msg": "canceled"}

    def ask(self, method, path, body=None):
        """(status, JSON) of the Livy behind."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "X-Requested-By": "stand-in"}
        request = urllib.request.Request(self.upstream + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=100) as reply:
                status, text = reply.status, reply.read()
        except urllib.error.HTTPError as error:
            with error:
                status, text = error.code, error.read()
        try:
            return status, json.loads(text or b"null")
        except ValueError:
            return status, text.decode()


class Fabric(LookAlike):
    """Microsoft Fabric's Livy endpoint, by its pages on Learn and its OpenAPI file (version 2023-12-01).

    A session's id is a UUID, a statement's a number. A session is made with 202 and no kind; a statement names it.
    `livyInfo` and `appInfo` come once it has started. 429 with Retry-After for too many requests, 430 for a capacity
    that is full. A Microsoft Entra token as bearer. No log, version, heartbeat or side channel.
    Assumed: fields that the file does not list are refused; the list has the form of its batches; errors of a token are
    401 as elsewhere in Fabric.
    """

    prefix = f"/v1/workspaces/{uuid.UUID(int=1)}/lakehouses/{uuid.UUID(int=2)}/livyApi/versions/2023-12-01"
    requests = MappingProxyType({**_SESSIONS, "POST /sessions/ID/reset-timeout": "reset"})
    created = 202
    _fields = MappingProxyType(
        {
            "create": {"name", "archives", "conf", "tags", "numExecutors"}
            | {f"{of}{what}" for of in ("driver", "executor") for what in ("Memory", "Cores")},
            "post": {"code", "kind", "sourceId"},
        }
    )

    def __init__(self, upstream):
        super().__init__(upstream)
        self.tokens = {"first"}  # those that are valid

    def admits(self, headers):
        kind, _, token = headers.get("Authorization", "").partition(" ")
        if kind != "Bearer" or token not in self.tokens:
            return 401, self.error(401, "Access token has expired, resubmit with a new access token", "")

    def problem(self, action, body):
        if action not in self._fields:
            return None
        unknown = body.keys() - self._fields[action]
        if unknown:
            return f"unknown fields: {sorted(unknown)}"
        if action == "post" and body.get("kind") != "pyspark":
            return "Scala cannot compile this"

    def shown(self, key, session):
        started = session["state"] in ("idle", "busy")
        parts = {"livyInfo": {"currentState": session["state"]}, "appInfo": {}, "appId": "app"} if started else {}
        state = session["state"]
        return {"id": key, "name": session.get("name"), "artifactId": "lakehouse", "state": state, **parts}

    def shown_list(self, sessions, headers):
        items = [{"id": each["id"], "name": each["name"], "livyState": each["state"]} for each in sessions]
        return {"items": items, "totalCountOfMatchedItems": len(items), "pageSize": 20}

    def shown_statement(self, key, statement):
        shown = {name: value for name, value in statement.items() if name in ("code", "state", "output")}
        return {**shown, "id": int(key), "sourceId": None}

    def error(self, status, message, path):
        codes = {401: "TokenExpired", 404: "NotFound", 430: "TooManyRequestsForCapacity"}
        return {"requestId": "r", "errorCode": codes.get(status, "InvalidInput"), "message": message}

    def post(self, *key, **more):
        status, statement = super().post(*key, **more)
        return 200 if status == 201 else status, statement

    def reset(self, key, **more):
        return 204, None


class EmrServerless(LookAlike):
    """The Livy endpoint of EMR Serverless (6.14 and newer), by its user guide.

    Each request is signed with AWS's Signature Version 4. A session needs the role `conf
    emr-serverless.session.executionRoleArn`, has a number, and is Livy's otherwise; one that has ended is not there any
    more. At most 25 at once. Nine requests are listed: no log, version, connect or side channel.
    Assumed: 403 for an unsigned or unlisted request, as AWS answers elsewhere. Signatures are not verified.
    """

    ROLE = "emr-serverless.session.executionRoleArn"
    requests = MappingProxyType({**_SESSIONS, "GET /sessions/ID/state": "describe"})

    def admits(self, headers):
        if not re.match(
            r"AWS4-HMAC-SHA256 Credential=\S+/emr-serverless/aws4_request,", headers.get("Authorization", "")
        ):
            return 403, {"message": "Missing Authentication Token"}

    def problem(self, action, body):
        if action == "create" and self.ROLE not in body.get("conf", {}):
            return f"{self.ROLE} is required"

    def new_id(self, number):
        return str(number)

    def shown(self, key, session):
        return {**session, "id": int(key)}

    def shown_statement(self, key, statement):
        return {**statement, "id": int(key)}

    def answer(self, method, path, headers, body):
        status, shown = super().answer(method, path, headers, body)
        unlisted = status == 404 and re.search(r"/(submit-job|connect|log|version)\b", path)
        return (403, {"message": "Forbidden"}) if unlisted else (status, shown)


class Lighter(LookAlike):
    """Exacaster's Lighter, by its documents and its source (August 2026).

    Ids of sessions and of statements are UUIDs. A session's name is in `submitParams`. The list is `sessions` for
    clients that say `X-Compatibility-Mode: sparkmagic`, else `applications`. It ignores unknown fields and has no login
    of its own. `GET /sessions/ID` is what its state is now; `/state` may be two minutes old. An output that failed has
    no ename, its evalue is the kind of the error. No version, connect or side channel.
    """

    prefix = "/lighter/api"
    requests = MappingProxyType({**_SESSIONS, "GET /sessions/ID/log": "log", "GET /sessions/ID/state": "stale"})

    def shown(self, key, session):
        params = {"name": session.get("name")}
        return {
            "id": key,
            "type": "SESSION",
            "state": session["state"],
            "kind": "pyspark",
            "log": [],
            "submitParams": params,
        }

    def shown_list(self, sessions, headers):
        key = "sessions" if headers.get("X-Compatibility-Mode") == "sparkmagic" else "applications"
        return {"from": 0, "total": len(sessions), key: sessions}

    def statement_id(self, number):
        return str(uuid.uuid4())

    def shown_statement(self, key, statement):
        output = statement.get("output")
        if output:
            traceback = "".join(output.get("traceback") or ())
            output = {"status": output["status"], "executionCount": 1, "data": output.get("data")}
            output.update({"evalue": statement["output"].get("ename"), "traceback": traceback})
        state = "waiting" if statement.get("state") == "running" else statement.get("state")
        return {"id": key, "code": statement.get("code"), "state": state, "output": output}

    def error(self, status, message, path):
        return {
            "message": "Not Found" if status == 404 else "Bad Request",
            "path": path,
            "errors": [{"message": message}],
        }

    def log(self, key, **more):
        return 200, {"id": key, "log": "one line\nanother"}

    def stale(self, key, **more):
        return 200, {"id": key, "state": "starting", "kind": "pyspark"}


class _Handler(Handler):
    def _serve(self):
        stand_in, body, headers = self.stand_in, self.json_body(), {}
        if stand_in.refused:
            status, headers = stand_in.refused.pop(0)
            answer = stand_in.error(status, "too much is asked for", self.path)
        else:
            status, answer = stand_in.answer(self.command, self.path, self.headers, body)
        if status is None:
            self.close_connection = True
            return
        raw = b"" if answer is None else json.dumps(answer).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    do_GET = do_POST = do_DELETE = _serve

"""redis-py as it is, against a server that speaks Redis's protocol: `client.py PORT SOCKET PROTOCOL RUN`."""

import sys
import threading

import redis

port, socket, protocol, run = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]


def raises(start, call):
    try:
        answer = call()
    except redis.ResponseError as error:
        assert str(error).startswith(start), error
    else:
        raise AssertionError(f"{answer!r} instead of an error {start}")


def pairs(answer):
    """A map, which RESP2 has not."""
    return answer if isinstance(answer, dict) else dict(zip(answer[::2], answer[1::2]))


client = redis.Redis(port=port, protocol=protocol)
assert client.ping()
assert client.set(f"{run}/1/1", b"\x00\xff bytes") is True
assert client.set(f"{run}/1/1", b"\x00\xff bytes") is True
raises("CONFLICT", lambda: client.set(f"{run}/1/1", b"other"))
assert client.get(f"{run}/1/1") == b"\x00\xff bytes"
assert client.get(f"{run}/1/7") is None

large = bytes(range(256)) * 4000
assert client.set(f"{run}/2/1", large)
assert client.get(f"{run}/2/1") == large
assert all(client.set(f"{run}/3/{source}", b"m%d" % source) for source in range(2))

with client.pipeline(transaction=False) as pipeline:
    for event in range(100, 600):
        pipeline.set(f"{run}/{event}/0", b"p" * event)
        pipeline.get(f"{run}/{event}/0")
    answers = pipeline.execute()
assert answers[::2] == [True] * 500 and all(len(answer) == 100 + at for at, answer in enumerate(answers[1::2]))

keys = [key for key, _ in client.execute_command("FB.RANGE", run, "COUNT", 1000)]
assert len(keys) == len(set(keys)) == 504, len(keys)
assert client.delete(f"{run}/100/0", f"{run}/100/9") == 1
assert client.info()["redis_mode"] == "standalone"
assert client.config_get("save") == {"save": ""}
assert client.client_setname("worker") and client.client_getname() in (b"worker", "worker")
assert int(client.client_id()) > 0

other = redis.Redis(unix_socket_path=socket, protocol=protocol, db=1)
assert other.set("1/1/1", b"in the other keyspace")
assert client.get(f"{run}/1/1") == b"\x00\xff bytes"

# Selection: one worker waits while another thread completes an event.
found = []
waiting = threading.Thread(
    target=lambda: found.append(
        redis.Redis(port=port, protocol=protocol).execute_command("FB.GETANY", "WAIT", 10000, "SOURCES", "NONE")
    )
)
before = client.execute_command("FB.GETANY", "COUNT", 1000, "SOURCES", "NONE")
assert [pairs(event)[b"primary"] for event in before] == [f"{run}/3".encode()]
token = pairs(before[0])[b"token"]
waiting.start()
assert client.set(f"{run}/1/2", b"second")
waiting.join(20)
event = pairs(found[0][0])
assert event[b"primary"] == f"{run}/1".encode() and pairs(event[b"fragments"]) == {}
assert client.execute_command("FB.ACCEPT", f"{run}/1", event[b"token"], "physics") in (b"OK", True)
assert client.execute_command("FB.REJECT", f"{run}/3", token) in (b"OK", True)
raises("FENCED", lambda: client.execute_command("FB.ACCEPT", f"{run}/3", token, "physics"))
raises("LATE", lambda: client.set(f"{run}/3/7", b"too late"))
ledger = pairs(client.execute_command("FB.LEDGER", run))
assert ledger[b"rejected"] == [1, 2, 4] and ledger[b"imbalance"] is None, ledger
raises("unknown command", lambda: client.lpush("list", "x"))
print("ok")

"""Operating a store through Redis's protocol: `resp.py PORT RUN`.

    forebay create /tmp/ops --sources-per-event 2 --attribute lumi:u32
    forebay serve /tmp/ops &
    python3 docs/resp.py 7441 1
"""

import sys

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

port, run = sys.argv[1:]
# A timeout beyond the longest WAIT, and no repeats by redis-py itself: a second FB.HOLD SET would be a second hold.
# RESP3 has maps: answers are dictionaries.
server = {"port": int(port), "protocol": 3, "socket_timeout": 60, "retry": Retry(NoBackoff(), 0)}
# Names and keys come as text, payloads as bytes.
ops = redis.Redis(decode_responses=True, **server).execute_command
data = redis.Redis(**server)


def leased(*options):
    """At most one event for this worker, without payloads; None where none is ready."""
    events = ops("FB.GETANY", *options, "SOURCES", "NONE")
    return events[0] if events else None


def release(bounds, *options):
    """Releases events that their archive has; one call does a bounded number and says where to go on."""
    events, after = 0, None
    while True:
        more, after = ops("FB.RELEASE", bounds, *options, *(("AFTER", after) if after else ()))
        events += more
        if after is None:
            return events


# A run is opened before its first fragment; a repeat is no error.
ops("FB.RUN", "OPEN", run)

# Put. A status goes with a fragment; attributes belong to its event.
data.set(f"{run}/1/0", b"\x00\xff")
data.execute_command("SET", f"{run}/1/1", b"\x01", "STATUS", "0x2", "ATTR", "lumi=6")

# Select: get_any, a look at the payload, a verdict.
event = leased("WAIT", 10000)
assert event["primary"] == f"{run}/1" and event["attributes"] == {"lumi": "6"}
assert data.get(f"{run}/1/0") == b"\x00\xff"
ops("FB.ACCEPT", event["primary"], event["token"], "physics")

# Announce an event that waits for three sources. The third one is dead: its mask lets the event go.
ops("FB.OPENEVENT", f"{run}/2", "ATTR", "lumi=7", "SOURCES", 0, 1, 2)
for source in (0, 1):
    data.set(f"{run}/2/{source}", b"second")
assert leased() is None
ops("FB.MASK", run, 2)

# Hold lumi section 7 back until it is calibrated.
hold = ops("FB.HOLD", "SET", "RUN", run, "lumi=7")
assert leased() is None
assert [one["conditions"] for one in ops("FB.HOLD", "LIST") if one["id"] == hold] == [["lumi=7"]]
ops("FB.HOLD", "RELEASE", hold)

# A worker that dies with the event, as often as the keyspace allows: the event goes to the debug stream.
while not (failed := ops("FB.DEBUG", "LIST")):
    leased("LEASE", 20, "WAIT", 20)
assert [(one["primary"], one["reason"]) for one in failed] == [(f"{run}/2", "worker silent")]
# The workers are repaired: they get it once more.
assert ops("FB.DEBUG", "REPLAY", f"{run}/2") == 1
event = leased("WAIT", 10000)
ops("FB.ACCEPT", event["primary"], event["token"], "calib")

# How each source does that this run has seen.
for source, status in ops("FB.SOURCES", run).items():
    print(source, status["fragments"], "fragments,", status["missing"], "missing, masked:", status["masked"])
ops("FB.UNMASK", run, 2)

# The archive has them: release a stream, then what is left of the run. The account of the run balances.
assert release(run, "STREAM", "calib") == 1
assert release(run) == 1
ledger = ops("FB.LEDGER", run)
assert ledger["released"][0] == 2 and ledger["imbalance"] is None
print("released", ledger["released"][0], "events")

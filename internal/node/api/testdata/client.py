"""Takes, renews and releases a lock over plain HTTP, with nothing but Python."""
import json
import sys
import urllib.error
import urllib.request

base = sys.argv[1]


def call(path, **body):
    """POST a call; returns the status and the answer."""
    request = urllib.request.Request(base + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused)


lock = "/v1/locks/jobs/from-python"
status, hold = call(lock + ":acquire", holder_id="python", ttl_ms=5000, timeout_ms=0)
assert status == 200 and hold["token"] > 0, (status, hold)
status, refused = call(lock + ":acquire", holder_id="another", timeout_ms=0)
assert status == 409 and refused["holder"] == "python" and refused["retry_after_ms"] > 0, (status, refused)
status, renewed = call(lock + ":renew", token=hold["token"], ttl_ms=60000)
assert status == 200 and renewed["ttl_ms"] > 5000, (status, renewed)
status, released = call(lock + ":release", token=hold["token"])
assert status == 200, (status, released)
status, again = call(lock + ":acquire", holder_id="another", timeout_ms=0)
assert status == 200 and again["token"] > hold["token"], (status, again)
print("token", hold["token"])

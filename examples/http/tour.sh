#!/bin/sh
# A tour of GoQueue's REST API with curl (7.82 or newer, for --json). GOQUEUE_URL: the gateway; GOQUEUE_KEY: an API key, if it wants one.
#   gqctl up && examples/http/tour.sh
set -eu
url=${GOQUEUE_URL:-http://127.0.0.1:8080}/v1
topic=${1:-tour-$$}
group=$topic-workers

api() { # METHOD PATH [JSON]
    curl -sS --fail-with-body -X "$1" ${GOQUEUE_KEY:+-H "Authorization: Bearer $GOQUEUE_KEY"} ${3:+--json "$3"} "$url$2"
    echo
}
# The value of the first "name":"..." in some JSON; a program would parse it.
field() { grep -o "\"$1\":\"[^\"]*\"" | head -n 1 | cut -d '"' -f 4; }

echo "# a topic, and messages for it"
api POST /topics "{\"name\": \"$topic\", \"partitions\": 2, \"config\": {\"maxRetries\": 2, \"backoffBaseMs\": 100}}"
api POST "/topics/$topic/publish" '{"value": "resize cat.png", "key": "cat", "headers": {"from": "curl"}, "priority": "high"}'
api POST "/topics/$topic/batch" '{"messages": [{"value": "one"}, {"value": "//79", "encoding": "base64"}, {"value": "later", "delay": "1s"}]}'

echo "# reading leaves no trace"
api GET "/topics/$topic/messages?limit=10"

echo "# a group: take a message, keep it for longer, be done with it"
member=$(api POST "/groups/$group/join" "{\"topics\": [\"$topic\"]}" | field member)
receipt=$(api GET "/groups/$group/poll?member=$member&max=1&wait=5" | field receipt)
api POST "/groups/$group/visibility" "{\"receipt\": \"$receipt\", \"timeout\": \"1m\"}"
api POST "/groups/$group/ack" "{\"receipt\": \"$receipt\"}"

echo "# one that fails: rejected, in the dead letter queue, given back"
receipt=$(api GET "/groups/$group/poll?member=$member&max=1&wait=5" | field receipt)
api POST /messages/reject "{\"receipt\": \"$receipt\", \"reason\": \"cannot read it\"}"
until api GET "/topics/$topic/dlq" | grep "cannot read it"; do sleep 0.1; done
api POST "/topics/$topic/dlq/redrive" '{}'

echo "# how far is the group?"
api GET "/groups/$group/lag"
api POST "/groups/$group/leave" "{\"member\": \"$member\"}"

echo "# what is wrong is told as a problem with a stable code (RFC 9457)"
api POST "/topics/$topic/publish" '{"value": 1}' || true

echo "# it never was"
api DELETE "/groups/$group"
api DELETE "/topics/$topic"

package natslink

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

const fits = `{"stream":"S","seq":1}`

// answered has the server say that, at an answer's subject.
func answered(a *answers, reply, data string) {
	m := &nats.Msg{Subject: reply, Data: []byte(data)}
	if data == "" {
		m.Header = nats.Header{"Status": {"503"}}
	}
	a.take(m)
}

// TestUnanswered: a state without an answer within ten seconds is told, once for all, and for as long as
// none of its place is kept.
func TestUnanswered(t *testing.T) {
	var told []error
	a := newAnswers(func(err error) { told = append(told, err) })
	now := time.Unix(0, 0)
	if reply := a.reply("s", now); reply != "" {
		t.Errorf("nobody listens, and answers go to %q", reply)
	}
	a.begin("in")
	late, other := a.reply("s", now), a.reply("o", now)
	a.overdue(now.Add(answerTime - 1))
	if a.err() != nil {
		t.Errorf("too early: %v", a.err())
	}
	a.overdue(now.Add(answerTime))
	if err := a.err(); err == nil || !strings.Contains(err.Error(), "no answer within 10s") || len(told) != 1 {
		t.Fatalf("%v, told %q", err, told)
	}
	answered(a, late, fits) // too late
	answered(a, other, fits)
	for _, subject := range []string{"s", "o"} {
		if a.err() == nil {
			t.Fatalf("before a state of %s is kept", subject)
		}
		answered(a, a.reply(subject, now), fits)
	}
	if a.err() != nil || a.before("s") != nil {
		t.Errorf("after both were kept: %v", a.err())
	}
}

// TestCutOff: what was sent into a connection that was cut is not waited for.
func TestCutOff(t *testing.T) {
	a := newAnswers(func(err error) { t.Error(err) })
	a.begin("in")
	a.reply("s", time.Unix(0, 0))
	a.forget()
	a.overdue(time.Unix(100, 0))
}

// TestAnswersAreBounded: of a server that does not answer no more states are waited for than there is room for.
func TestAnswersAreBounded(t *testing.T) {
	a := newAnswers(func(error) {})
	a.begin("in")
	for i := range 2 * maxUnanswered {
		a.reply(fmt.Sprint(i), time.Unix(0, 0))
	}
	if len(a.waiting) != maxUnanswered {
		t.Errorf("%d are waited for", len(a.waiting))
	}
}

// TestCauses: each cause is told when it begins, whatever the order in which places are refused.
func TestCauses(t *testing.T) {
	var told []string
	a := newAnswers(func(err error) { told = append(told, err.Error()) })
	a.begin("in")
	for range 3 {
		answered(a, a.reply("s", time.Time{}), `{"error":{"code":503,"description":"insufficient resources"},"stream":"S"}`)
		answered(a, a.reply("o", time.Time{}), "")
		answered(a, a.reply("p", time.Time{}), "{}")
	}
	if len(told) != 3 || !strings.Contains(told[0], "insufficient resources") || !strings.Contains(told[1], "no stream") || !strings.Contains(told[2], "none of JetStream") {
		t.Errorf("told %q", told)
	}
	answered(a, "in.x", fits)
	answered(a, "in.99", fits)
}

// TestForgottenStates: a state that is kept and does not come, although all that is kept has come, is told until a later
// one of its place has come; one that came before its answer is not waited for, nor one that the feed may still bring.
func TestForgottenStates(t *testing.T) {
	var told []error
	a := newAnswers(func(err error) { told = append(told, err) })
	a.begin("in")
	now := time.Unix(0, 0)
	keep := func(subject string, came bool) {
		reply := a.reply(subject, now)
		if came {
			a.came(subject)
		}
		answered(a, reply, fits)
	}
	later := func() { now = now.Add(answerTime); a.overdue(now) }
	keep("lost", false)
	keep("came", true)
	if later(); a.err() != nil {
		t.Fatalf("the feed has not brought all: %v", a.err())
	}
	for range 3 {
		a.allCame(now.Add(answerTime / 2))
		if later(); a.err() == nil || !strings.Contains(a.err().Error(), "max_bytes") || len(told) != 1 {
			t.Fatalf("%v, told %q", a.err(), told)
		}
		keep("lost", false)
		if a.before("lost") == nil || a.before("came") != nil {
			t.Error("the next state is not told of the last one, or another is")
		}
	}
	a.came("lost")
	a.allCame(now.Add(answerTime / 2))
	if later(); a.err() != nil || a.before("lost") != nil {
		t.Errorf("after it has come: %v", a.err())
	}
	keep("lost", false)
	a.forget()
	a.allCame(now.Add(answerTime / 2))
	if later(); a.err() != nil {
		t.Errorf("what was sent into a broken connection: %v", a.err())
	}
}

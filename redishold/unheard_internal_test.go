package redishold

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/services"
)

// deaf is an engine that loses answers.
type deaf struct {
	engine
	loses bool
}

func (d *deaf) run(ctx context.Context, s *script, keys, args []string) ([]string, error) {
	reply, err := d.engine.run(ctx, s, keys, args)
	if d.loses {
		return nil, errors.New("the connection broke")
	}
	return reply, err
}

// TestUnheardAnswersAreForgotten: answers that did not arrive are kept for a repetition as long as everything else is
// remembered, and not for as long as the program asks something.
func TestUnheardAnswersAreForgotten(t *testing.T) {
	c, _ := aSpace(t, services.Redis(t).URL())
	d := &deaf{engine: c.rc}
	c.rc, c.acking = d, true // only requests tell what has arrived
	count := func(i byte) error {
		_, err := c.Count(t.Context(), &driver.CountRequest{ID: [16]byte{i}, Name: "c", Op: driver.CountAdd, A: 1})
		return err
	}
	kept := func() string { return c.rc.do(t.Context(), []string{"HLEN", c.key + "w:" + c.id})[0].reply[0] }
	if err := count(1); err != nil {
		t.Fatal(err)
	}
	d.loses = true
	for i := range byte(3) {
		if err := count(2 + i); err == nil {
			t.Fatal("a lost answer is told")
		}
	}
	d.loses = false
	if err := count(2); err != nil { // again
		t.Fatal(err)
	}
	if n := kept(); n != "3" {
		t.Errorf("%s answers are kept of 3 that were lost", n)
	}
	later(c)
	if err := count(9); err != nil {
		t.Fatal(err)
	}
	if n := kept(); n != "1" {
		t.Errorf("%s answers are kept, and only the last one may be asked for", n)
	}
}

// later has ten minutes pass for what was not answered.
func later(c *client) {
	c.lookAt = time.Time{}
	for request, at := range c.unheard {
		c.unheard[request] = at.Add(-keptFor - 1)
	}
}

// TestUnheardIsRepeatedLate: a request that is repeated, also when its answer was lost long ago, does not itself have the
// server forget that answer, and is no old one from then on.
func TestUnheardIsRepeatedLate(t *testing.T) {
	c, _ := aSpace(t, services.Redis(t).URL())
	d := &deaf{engine: c.rc}
	c.rc, c.acking = d, true // only requests tell what has arrived
	count := func(i byte) (uint64, error) {
		reply, err := c.Count(t.Context(), &driver.CountRequest{ID: [16]byte{i}, Name: "c", Op: driver.CountAdd, A: 1})
		return reply.Value, err
	}
	d.loses = true
	for range 2 { // it is repeated, in vain too
		later(c)
		if _, err := count(1); err == nil {
			t.Fatal("a lost answer is told")
		}
	}
	d.loses = false
	c.lookAt = time.Time{}
	if n, err := count(2); n != 2 || err != nil {
		t.Errorf("another counts to %d, %v", n, err)
	}
	later(c)
	if n, err := count(1); n != 1 || err != nil {
		t.Errorf("the one that was repeated counts to %d, %v", n, err)
	}
	if len(c.unheard) != 0 {
		t.Errorf("%d requests are noted that were answered", len(c.unheard))
	}
}

// TestUnheardIsBounded: a client remembers only some of its requests while its server is away, and none that surely was not done.
func TestUnheardIsBounded(t *testing.T) {
	var c client
	c.unanswered("refused", errClosed)
	if len(c.unheard) != 0 {
		t.Error("a request that was not done is noted")
	}
	for i := range 2 * maxUnheard {
		c.unanswered(strconv.Itoa(i), errors.New("the connection broke"))
	}
	if len(c.unheard) != maxUnheard {
		t.Errorf("%d requests are noted", len(c.unheard))
	}
}

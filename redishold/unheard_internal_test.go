package redishold

import (
	"context"
	"errors"
	"testing"

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
	c.rc = d
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
	for i := range c.unheard {
		c.unheard[i].at = c.unheard[i].at.Add(-keptFor - 1)
	}
	if err := count(9); err != nil {
		t.Fatal(err)
	}
	if n := kept(); n != "1" {
		t.Errorf("%s answers are kept, and only the last one may be asked for", n)
	}
}

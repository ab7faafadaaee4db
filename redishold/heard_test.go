package redishold_test

import (
	"testing"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/services"
)

// TestHeardAnswersAreForgotten: answers that have arrived are soon not kept any more, also if no request follows that says so.
func TestHeardAnswersAreForgotten(t *testing.T) {
	server := services.Redis(t)
	d, rc := raw(t, server.URL()), admin(t, server.URL())
	const many = 200
	crowd(t, many, func(int) error {
		_, err := d.Count(t.Context(), &driver.CountRequest{ID: newID(), Name: "c", Op: driver.CountAdd, A: 1})
		return err
	})
	eventually(t, "answers that have arrived are kept", func() bool { return len(matching(t, rc, "{holdfast}:w:*")) == 0 })
	if n := do(t, rc, "GET", "{holdfast}:n:c"); n != "200" {
		t.Errorf("the counter is %s after %d additions", n, many)
	}
}

package edgeserver

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/holdfast-io/holdfast/edge"
	"github.com/holdfast-io/holdfast/internal/causes"
)

// Alerts tells a URL when nodes begin and cease to differ too much.
type Alerts struct {
	Node *edge.Node
	// URL gets a POST with JSON: alert, firing, node, value, threshold.
	URL string
	// Divergence and SyncAge are above what an alert fires; 0: never.
	Divergence uint64
	SyncAge    time.Duration
	// Client posts; nil: http.DefaultClient.
	Client *http.Client
	// OnError is told of an alert that could not be delivered, each cause once until one is; it is
	// tried again with the next look.
	OnError func(error)

	firing map[string]bool
	told   causes.Told
}

// alertTimeout bounds one delivery.
const alertTimeout = 5 * time.Second

// Run looks each second until ctx ends.
func (a *Alerts) Run(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			a.look(ctx)
		}
	}
}

// look tells what has changed since the last look.
func (a *Alerts) look(ctx context.Context) {
	if a.firing == nil {
		a.firing = map[string]bool{}
	}
	if a.Divergence > 0 {
		a.tell(ctx, "divergence", float64(a.Node.Divergence()), float64(a.Divergence))
	}
	if a.SyncAge > 0 {
		a.tell(ctx, "sync_age_seconds", a.Node.SyncAge().Seconds(), a.SyncAge.Seconds())
	}
}

func (a *Alerts) tell(ctx context.Context, alert string, value, threshold float64) {
	firing := value > threshold
	if firing == a.firing[alert] {
		return
	}
	err := a.post(ctx, map[string]any{"alert": alert, "firing": firing, "node": a.Node.Actor().String(), "value": value, "threshold": threshold})
	if err == nil {
		a.firing[alert] = firing
		a.told.Well()
		return
	}
	if err = fmt.Errorf("alert %s: %w", alert, err); a.told.Fresh(err) && a.OnError != nil {
		a.OnError(err)
	}
}

func (a *Alerts) post(ctx context.Context, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, alertTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, a.URL, bytes.NewReader(text))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := cmp.Or(a.Client, http.DefaultClient).Do(r)
	if err != nil {
		return err
	}
	answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("the answer was %s", answer.Status)
	}
	return nil
}

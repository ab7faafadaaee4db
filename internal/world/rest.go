package world

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"

	"github.com/holdfast-io/holdfast/driver"
)

// rester speaks JSON over HTTP, to whichever node it finds.
type rester struct {
	p *party
	c http.Client
	t *http.Transport
}

func newRester(p *party) *rester {
	t := &http.Transport{DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) { return p.m.dial(ctx, addr) }}
	return &rester{p: p, t: t, c: http.Client{Transport: t}}
}

func (x *rester) protocol() string { return "rest" }
func (x *rester) close()           { x.t.CloseIdleConnections() }

// body is a request's or an answer's.
type body map[string]any

func (b body) number(name string) int64 {
	n, _ := b[name].(json.Number)
	i, _ := n.Int64()
	return i
}

var errNotAcquired error = &driver.Error{Kind: driver.ErrHeld, Outcome: driver.NotDone}

// post asks some node. What could not be asked, or was not answered, is unknown.
func (x *rester) post(ctx context.Context, method, path string, in body, key string) (body, error) {
	data, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://"+x.p.node()+path, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	r.GetBody = nil // what was sent once is not sent again by the client itself
	if key != "" {
		r.Header["Idempotency-Key"] = []string{key}
	}
	resp, err := x.c.Do(r)
	if err != nil {
		return nil, &driver.Error{Kind: driver.ErrUnavailable, Err: err}
	}
	out, err := answerOf(resp)
	if err != nil || resp.StatusCode == http.StatusOK {
		return out, err
	}
	return nil, failure(out)
}

// answerOf reads an answer to its end.
func answerOf(resp *http.Response) (body, error) {
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, &driver.Error{Kind: driver.ErrUnavailable, Err: err}
	}
	out := body{}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(&out); err != nil {
		return nil, &driver.Error{Kind: driver.ErrUnavailable, Err: err}
	}
	return out, nil
}

// refusal is the error that an answer tells.
func refusal(resp *http.Response) error {
	out, err := answerOf(resp)
	if err != nil {
		return err
	}
	return failure(out)
}

// failure is an error as REST tells it.
func failure(b body) error {
	text, _ := b["error"].(string)
	e := &driver.Error{Err: errors.New(text)}
	if kind, _ := b["kind"].(string); kind != "" {
		e.Kind = driver.Kind(kind)
	}
	if b["not_done"] == true {
		e.Outcome = driver.NotDone
	}
	return e
}

func (x *rester) add(ctx context.Context, name string, amount int64, key string) (int64, error) {
	verb := "add"
	if amount < 0 {
		verb, amount = "subtract", -amount
	}
	r, err := x.post(ctx, "POST", "/v1/counters/"+name+":"+verb, body{"amount": amount}, key)
	return r.number("value"), err
}

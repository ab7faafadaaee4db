package fence

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"strconv"

	"github.com/holdfast-io/holdfast/driver"
)

// Transport is an http.RoundTripper that shows a token to a [Handler] on the
// other side: that of the request's context (see [NewContext]), or Pass. A
// request without either is an error and is not sent: an unfenced write should
// be a decision, not an oversight.
//
//	client := &http.Client{Transport: &fence.Transport{}}
//	ctx = fence.NewContext(ctx, fence.Pass{Resource: "accounts/7", Token: token})
//
// The headers go to whatever host the request goes to. A token is no secret, and
// no proof of a grant either: the other side believes it (see [Handler]).
type Transport struct {
	// Base sends the requests; nil: http.DefaultTransport.
	Base http.RoundTripper
	// Pass is for requests with no Pass in their context.
	Pass Pass
}

// RoundTrip sends a copy of the request with the headers set.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	p, err := t.pass(r)
	if err != nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, err
	}
	sent := r.Clone(r.Context())
	if sent.Header == nil {
		sent.Header = http.Header{}
	}
	sent.Header.Set(HeaderToken, strconv.FormatUint(uint64(p.Token), 10))
	sent.Header.Set(HeaderResource, escape(p.Resource))
	sent.Header.Set(HeaderMode, modeName(p.Mode))
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	return base.RoundTrip(sent)
}

func (t *Transport) pass(r *http.Request) (Pass, error) {
	const op = "fence request"
	p, ok := FromContext(r.Context())
	if !ok {
		p = t.Pass
	}
	if p == (Pass{}) {
		return p, driver.Errorf(op, "", fs.ErrInvalid,
			"no token for %s; put one into the request's context with fence.NewContext, or set Transport.Pass", r.URL.Redacted())
	}
	return p, p.check(op)
}

// maxProblem bounds what is read of a refusal, in bytes.
const maxProblem = 64 << 10

// ResponseError turns the refusal of a [Handler] into the error that its gate
// gave: errors.Is(err, driver.ErrStale) means that the hold was lost. It returns
// nil for every other response and then leaves the body alone; otherwise it has
// read the body. Closing it remains with the caller.
func ResponseError(resp *http.Response) error {
	name := resp.Header.Get(HeaderError)
	if name == "" {
		return nil
	}
	e := &driver.Error{Op: "fence request", Outcome: driver.NotDone}
	for _, a := range answers {
		if a.name == name {
			e.Kind = a.kind
		}
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	var p problem
	if err == nil {
		err = json.Unmarshal(data, &p)
	}
	if err != nil {
		p.Message = "refused with " + resp.Status
	}
	e.Name, e.Err = p.Resource, p.cause(e.Kind)
	return e
}

// cause is what the gate said: numbers if it was a refusal, else its text.
func (p problem) cause(kind error) error {
	mode, err := parseMode(p.Mode)
	if kind == driver.ErrStale && err == nil && p.Token != 0 {
		return &Refusal{p.Token, mode, p.LastExclusive, p.LastShared, p.Repeated}
	}
	return errors.New(p.Message)
}

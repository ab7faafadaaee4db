package limits

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/limit"
)

// Known is a limiter's rate as an engine has it: its Text is an epoch of 32 characters,
// by which what was used at one rate is told from what was used at another, a space
// and the rate.
type Known struct {
	Text string
	Rate limit.Rate
}

// Epoch is that of the rate.
func (k Known) Epoch() string { return k.Text[:epochLength] }

// Number is the epoch for reservations.
func (k Known) Number() uint64 { return Number(k.Epoch()) }

// Number is an epoch, in hexadecimal digits that nobody else has, for reservations.
func Number(epoch string) uint64 {
	n, _ := strconv.ParseUint(epoch[:min(len(epoch), 16)], 16, 64)
	return n
}

const epochLength = 32

// Fresh is the rate of r in an epoch of its own.
func Fresh(r *driver.LimitRequest) Known {
	text, _ := json.Marshal(r.Rate) // numbers and a name: never fails
	return Known{hex.EncodeToString(r.ID[:]) + " " + string(text), r.Rate}
}

// Agreed is the rate that the engine has, if r says the same; "": it has none, and fresh is
// what to make of r.
func Agreed(text string, r *driver.LimitRequest) (has, fresh Known, err error) {
	if text == "" {
		_, err = Agree(has.Rate, false, r)
		return Known{Rate: r.Rate}, Fresh(r), err
	}
	has.Text = text
	_, rate, _ := strings.Cut(text, " ")
	if err := json.Unmarshal([]byte(rate), &has.Rate); err != nil || len(text) <= epochLength {
		return has, fresh, fmt.Errorf("the engine has %q for a rate: another version wrote it", text)
	}
	_, err = Agree(has.Rate, true, r)
	return has, fresh, err
}

// Looks reports that r is a look at a limiter that the engine, which has told text for its rate, does not
// have: it is decided as of a key that was never used, and makes nothing.
func Looks(text string, r *driver.LimitRequest) bool {
	return text == "" && r.Op == driver.LimitPeek && r.Rate.Count != 0
}

// Make is the text that the engine is to make the limiter of if it has none; "": nothing.
func (k Known) Make(r *driver.LimitRequest) string {
	if r.Op == driver.LimitPeek {
		return ""
	}
	return k.Text
}

// maxKnown bounds how many rates a client remembers.
const maxKnown = 10_000

// Rates are those that a client has seen. The zero value is ready.
type Rates struct {
	mu     sync.Mutex
	byName map[string]Known
}

// Guess is what the engine has, as far as is known, and else what to make of r if it has
// none: both may be empty.
func (s *Rates) Guess(r *driver.LimitRequest) (has, fresh Known) {
	s.mu.Lock()
	defer s.mu.Unlock()
	has = s.byName[r.Name]
	if r.Rate.Count == 0 || has.Rate.Equal(r.Rate) {
		return has, fresh
	}
	return Known{Rate: r.Rate}, Fresh(r)
}

// Note remembers what the engine has.
func (s *Rates) Note(name string, k Known) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byName == nil || len(s.byName) >= maxKnown {
		s.byName = map[string]Known{}
	}
	s.byName[name] = k
}

// Takes reports that r takes from a bucket, which an engine decides by adding and
// comparing moments; all else needs the algorithm.
func Takes(rate limit.Rate, r *driver.LimitRequest) bool {
	return r.Op == driver.LimitTake && Bucket(rate) && rate.Count > 0 && r.Cost <= rate.Limit()
}

// Bucket reports that the rate is that of a bucket.
func Bucket(rate limit.Rate) bool {
	return rate.Algorithm == limit.GCRA || rate.Algorithm == limit.TokenBucket
}

// Lacks is what a new key of a bucket lacks; then its keys are remembered for good.
func Lacks(rate limit.Rate) int64 {
	if rate.Initial == 0 {
		return 0
	}
	return rate.Limit() - rate.Initial
}

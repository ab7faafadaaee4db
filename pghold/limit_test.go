//go:build unix

package pghold_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/limit"
)

// Of windows too, keys that are not used any more are removed by those that are new, and a
// key that is made again is not taken for the one that was removed.
func TestLimitKeysOfWindows(t *testing.T) {
	url := database(t)
	look := connect(t, url)
	l := open(t, url).Limiter("l", limit.Rate{Count: 5, Per: time.Hour, Algorithm: limit.FixedWindow})
	for i := range 20 {
		must(l.Allow(t.Context(), fmt.Sprint(i)))(t)
	}
	var before, after, left int64
	scan(t, look, &before, "select v from holdfast.usage where key = '7'")
	_, err := look.Exec(t.Context(), "delete from holdfast.usage where key = '7'")
	check(t, err)
	must(l.Allow(t.Context(), "7"))(t)
	scan(t, look, &after, "select v from holdfast.usage where key = '7'")
	if before == after {
		t.Error("a key that was removed and made again looks as if it had not been changed")
	}
	_, err = look.Exec(t.Context(), "update holdfast.usage set idle = 1")
	check(t, err)
	for i := range 10 {
		must(l.Allow(t.Context(), fmt.Sprint("new ", i)))(t)
	}
	if scan(t, look, &left, "select count(*) from holdfast.usage where key not like 'new %'"); left != 0 {
		t.Errorf("%d of 20 keys that are not used any more are left after 10 that are new", left)
	}
}

//go:build unix

package services_test

import (
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/holdfast-io/holdfast/internal/services"
)

// Each trial is tried until it strikes, and no more at once than there may be.
func TestStruck(t *testing.T) {
	var mu sync.Mutex
	var now, most int
	tries := make([]int, 10)
	more := services.Struck(t, len(tries), 3, func(i int) bool {
		mu.Lock()
		now++
		most = max(most, now)
		mu.Unlock()
		runtime.Gosched() // others come in
		mu.Lock()
		defer mu.Unlock()
		now--
		tries[i]++
		return tries[i] > i%2
	})
	if want := []int{1, 2, 1, 2, 1, 2, 1, 2, 1, 2}; !slices.Equal(tries, want) || more != 5 || most > 3 {
		t.Errorf("tries %v, %d more, %d at once", tries, more, most)
	}
}

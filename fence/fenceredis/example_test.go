package fenceredis_test

import (
	"fmt"

	"github.com/holdfast-io/holdfast/fence/fenceredis"
)

// The keys of a fenced script share the hash tag of their resource.
func ExampleKey() {
	fmt.Println(fenceredis.Key("accounts/7"))
	// Output:
	// holdfast:fence:{accounts/7}
}

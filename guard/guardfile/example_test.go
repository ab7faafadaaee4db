package guardfile_test

import (
	"fmt"

	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/guard/guardfile"
)

func Example() {
	guards, err := guardfile.Parse("deploy.yaml", []byte(`
guards:
  merge:
    when:
      all:
        - lock_free: main-branch
        - not: {file_exists: .freeze}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(guards[0].Name)
	fmt.Println(guards[0].When.Evaluate(guard.Inputs{
		{Source: guard.SourceLock, Name: "main-branch"}: {Is: true, Text: "deploy-7"},
		{Source: guard.SourceFile, Name: ".freeze"}:     {},
	}))

	_, err = guardfile.Parse("deploy.yaml", []byte("guards:\n  merge:\n    when: {lock_fre: main-branch}\n"))
	fmt.Println(err)
	// Output:
	// merge
	// failed
	//   ✗ the lock "main-branch" is free (held by "deploy-7"): it is waited for until "deploy-7" releases it
	//   ✓ not: the file ".freeze" exists (no)
	// deploy.yaml:3:12: a condition does not know "lock_fre"; did you mean lock_free?
}

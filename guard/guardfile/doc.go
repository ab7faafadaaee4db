// Package guardfile reads guards from YAML and JSON files.
//
// A file has named guards, each with the condition on which work may begin:
//
//	guards:
//	  merge:
//	    description: nobody works on the branch, and no freeze
//	    when:
//	      all:
//	        - lock_free: main-branch
//	        - semaphore_available: {name: agents, weight: 2}
//	        - branch_merged: {branch: feature/x, into: main}
//	        - not: {file_exists: .freeze}
//
// A condition has one key, its kind, under the names of package guard. Its fields follow
// as a mapping; where one field is enough, its text alone will do. [Schema] describes
// every kind for editors.
//
// Reading is strict: an unknown or repeated key, a value of another type (a number where
// a text belongs: quote it) and a second document are errors with file, line and column.
// Anchors and aliases of YAML may be used; an alias within itself is refused, and merge
// keys (<<) are. A file is bounded in size, levels and conditions with its aliases
// written out, so text from strangers costs a bounded time and memory.
package guardfile

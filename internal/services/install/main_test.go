//go:build unix

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestInstallNamesWhatIsThere(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"redis-server", "postgres", "initdb", "pgbouncer", "python3", "curl"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	t.Setenv("HOLDFAST_TEST_REDIS_URL", "redis://example.org")
	t.Setenv("HOLDFAST_TEST_POSTGRES_URL", "")
	var out, errs bytes.Buffer
	complete := install(t.Context(), &out, &errs)
	want := "postgresql    " + dir + "/postgres\npgbouncer     " + dir + "/pgbouncer\npython3       " + dir + "/python3\ncurl          " + dir + "/curl\n"
	if !complete || out.String() != want || errs.Len() != 0 {
		t.Errorf("complete %v, out %q, errors %q; want %q", complete, out.String(), errs.String(), want)
	}
}

func TestInstallNamesWhatIsMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("HOLDFAST_TEST_REDIS_URL", "")
	var out, errs bytes.Buffer
	if install(t.Context(), &out, &errs) || !strings.Contains(errs.String(), "apt-get install redis-server") {
		t.Errorf("out %q, errors %q; want redis-server missing", out.String(), errs.String())
	}
}

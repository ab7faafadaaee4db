package fence_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/fence"
)

// jobVariable makes the test binary do a job in a process of its own instead:
// "kind seed directory".
const jobVariable = "HOLDFAST_FENCE_TEST_JOB"

func runJob(job string) int {
	var kind, path string
	var seed uint64
	if _, err := fmt.Sscan(job, &kind, &seed, &path); err != nil {
		fmt.Println(err)
		return 2
	}
	dir := &fence.Dir{Path: filepath.Join(path, "gate")}
	err := map[string]func(*fence.Dir, uint64, string) error{"stay": stay, "write": write}[kind](dir, seed, path)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// stay keeps the resource until the process is killed.
func stay(dir *fence.Dir, token uint64, _ string) error {
	return dir.Do(context.Background(), "r", fence.Token(token), fence.Exclusive, func(context.Context) error {
		fmt.Println("inside")
		_, err := io.Copy(io.Discard, os.Stdin)
		return err
	})
}

// write adds lines to a file by reading and replacing the whole of it, so that
// two writers at once lose lines, and prints how many it added.
func write(dir *fence.Dir, seed uint64, path string) error {
	rnd := rand.New(rand.NewPCG(seed, 3))
	file, added := filepath.Join(path, "log"), 0
	for i := range 30 {
		token := fence.Token(1 + i*2 + rnd.IntN(20))
		err := dir.Do(context.Background(), "r", token, fence.Exclusive, func(context.Context) error {
			old, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			added++
			return os.WriteFile(file, fmt.Appendf(old, "%d\n", token), 0o600)
		})
		if err != nil && !errors.Is(err, driver.ErrStale) {
			return err
		}
	}
	fmt.Println(added)
	return nil
}

func job(t *testing.T, kind string, seed uint64, path string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %s", jobVariable, kind, seed, path))
	return cmd
}

// "flock between processes", and the token of a killed process stays seen.
func TestAKilledProcessFreesTheResourceAndLeavesItsToken(t *testing.T) {
	path := t.TempDir()
	cmd := job(t, "stay", 20, path)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "inside\n" {
		t.Fatalf("%q, %v", line, err)
	}
	dir := &fence.Dir{Path: filepath.Join(path, "gate")}
	if !blocked(t, dir, 21, fence.Exclusive) {
		t.Error("let in beside another process")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	wantError(t, dir.Do(t.Context(), "r", 19, fence.Exclusive, nothing), driver.ErrStale, "20")
	if err := dir.Do(t.Context(), "r", 21, fence.Exclusive, nothing); err != nil {
		t.Error(err)
	}
}

func TestProcessesWriteInOrderOfTheirTokens(t *testing.T) {
	path := t.TempDir()
	file := filepath.Join(path, "log")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	added := make(chan int)
	const processes = 4
	for seed := range uint64(processes) {
		go func() {
			out, err := job(t, "write", seed, path).CombinedOutput()
			n, bad := strconv.Atoi(strings.TrimSpace(string(out)))
			if err != nil || bad != nil {
				t.Errorf("%v: %s", err, out)
			}
			added <- n
		}()
	}
	want := 0
	for range processes {
		want += <-added
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var tokens []int
	for line := range strings.FieldsSeq(string(text)) {
		token, _ := strconv.Atoi(line)
		tokens = append(tokens, token)
	}
	if len(tokens) != want || want == 0 || !slices.IsSorted(tokens) {
		t.Errorf("%d lines of %d: %v", len(tokens), want, tokens)
	}
}

package guardfile_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/guard/guardfile"
)

// beyond are the refusals that a schema cannot say.
var beyond = []string{
	"two phases are called", "no later phase", "is there twice", "at most the limit", "every phase is for recovery", "they are for the start of a command",
	"the policy", "cannot be a parameter or begin with -", "text of a shell", "there is no parameter", "is not a duration", "has no unit", "the name of its command is empty",
	"a parameter would become", "the parameter", "is not a plain decimal", "is not a time of the day", "is not an offset", "is not one of", "is below", "wants a whole number", "before what?",
}

// The schema and the parser of pipelines agree on files made of right and of wrong pieces,
// but for what a schema cannot say.
func TestPipelineSchemaAgrees(t *testing.T) {
	v := validator{t: t}
	if err := json.Unmarshal(guardfile.PipelineSchema(), &v.root); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(16, 2))
	agreed := map[bool]int{}
	for range 2_500 {
		text, err := json.Marshal(sensible(rng, v.made(rng, v.root, 4)))
		if err != nil {
			t.Fatal(err)
		}
		var read any
		if err := json.Unmarshal(text, &read); err != nil {
			t.Fatal(err)
		}
		want := v.valid(v.root, read)
		for _, name := range []string{"f.json", "f.yaml"} {
			_, err := guardfile.ParsePipeline(name, text, nil)
			if told := err != nil && slices.ContainsFunc(beyond, func(s string) bool { return strings.Contains(err.Error(), s) }); (err == nil) != want && !(want && told) {
				t.Fatalf("the schema says %t, %s says %v: %s", want, name, err, text)
			}
			if want == (err == nil) {
				agreed[want]++
			}
		}
	}
	if agreed[true] < 500 || agreed[false] < 500 {
		t.Errorf("good and bad files: %v, too few of one kind to judge", agreed)
	}
}

// sensible is a file with the parameter a and phases of different names, mostly.
func sensible(rng *rand.Rand, file any) any {
	f, _ := file.(map[string]any)
	phases, _ := f["phases"].([]any)
	if f == nil || rng.IntN(10) == 0 {
		return file
	}
	f["params"] = map[string]any{"a": map[string]any{"type": "integer", "default": 1}}
	for i := range phases {
		if ph, ok := phases[i].(map[string]any); ok && ph["name"] != nil {
			ph["name"], ph["recovery"] = fmt.Sprint("p", i), i > 0
			delete(ph, "on_failure")
		}
	}
	return file
}

// made makes a value by a schema, with an error now and then.
func (v validator) made(rng *rand.Rand, schema map[string]any, depth int) any {
	if rng.IntN(400) == 0 {
		return pick(rng, pieces)
	}
	if name, ok := schema["$ref"].(string); ok {
		return v.made(rng, v.root["$defs"].(map[string]any)[strings.TrimPrefix(name, "#/$defs/")].(map[string]any), depth-1)
	}
	if forms, ok := schema["anyOf"].([]any); ok {
		return v.made(rng, pick(rng, forms).(map[string]any), depth)
	}
	switch {
	case schema["type"] == "object":
		return v.madeObject(rng, schema, depth)
	case schema["type"] == "array":
		list := []any{}
		for range rng.IntN(3) + int(number(schema["minItems"])) {
			list = append(list, v.made(rng, schema["items"].(map[string]any), depth))
		}
		return list
	case schema["enum"] != nil:
		return pick(rng, schema["enum"].([]any))
	}
	return v.piece(rng, schema)
}

func number(x any) float64 {
	n, _ := x.(float64)
	return n
}

func (v validator) madeObject(rng *rand.Rand, schema map[string]any, depth int) any {
	o := map[string]any{}
	if rest, ok := schema["additionalProperties"].(map[string]any); ok {
		o[pick(rng, []string{"a", "x", "agents", "1", ""})] = v.made(rng, rest, depth)
		return o
	}
	properties := schema["properties"].(map[string]any)
	names := keys(properties)
	if schema["maxProperties"] == float64(1) { // of which one is chosen
		if depth <= 0 {
			names = slices.DeleteFunc(names, func(s string) bool { return slices.Contains([]string{"all", "any", "not"}, s) })
		}
		name := pick(rng, names)
		o[name] = v.made(rng, properties[name].(map[string]any), depth)
		return o
	}
	required, _ := schema["required"].([]any)
	for _, name := range names {
		if need := slices.Contains(required, any(name)); need && rng.IntN(200) > 0 || !need && rng.IntN(4) == 0 {
			o[name] = v.made(rng, properties[name].(map[string]any), depth)
		}
	}
	if rng.IntN(400) == 0 {
		o["nmae"] = "a"
	}
	return o
}

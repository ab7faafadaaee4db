package guardfile_test

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/holdfast-io/holdfast/guard/guardfile"
)

// validator knows as much of JSON Schema as ours uses, and fails the test on more.
type validator struct {
	t    *testing.T
	root map[string]any
}

func (v validator) valid(schema map[string]any, x any) bool {
	for keyword, arg := range schema {
		if !v.keyword(schema, keyword, arg, x) {
			return false
		}
	}
	return true
}

func (v validator) keyword(schema map[string]any, keyword string, arg, x any) bool {
	text, isText := x.(string)
	list, isList := x.([]any)
	number, isNumber := x.(float64)
	object, isObject := x.(map[string]any)
	switch keyword {
	case "$schema", "$defs", "title", "description":
		return true
	case "$ref":
		name := strings.TrimPrefix(arg.(string), "#/$defs/")
		return v.valid(v.root["$defs"].(map[string]any)[name].(map[string]any), x)
	case "type":
		_, isBool := x.(bool)
		return map[string]bool{"string": isText, "array": isList, "object": isObject, "boolean": isBool,
			"integer": isNumber && number == float64(int64(number))}[arg.(string)]
	case "anyOf":
		return slices.ContainsFunc(arg.([]any), func(s any) bool { return v.valid(s.(map[string]any), x) })
	case "enum":
		return slices.Contains(arg.([]any), x)
	case "minLength":
		return !isText || utf8.RuneCountInString(text) >= int(arg.(float64))
	case "maxLength":
		return !isText || utf8.RuneCountInString(text) <= int(arg.(float64))
	case "pattern":
		return !isText || regexp.MustCompile(arg.(string)).MatchString(text)
	case "minimum":
		return !isNumber || number >= arg.(float64)
	case "maximum":
		return !isNumber || number <= arg.(float64)
	case "maxItems":
		return !isList || len(list) <= int(arg.(float64))
	case "dependentRequired":
		for name, need := range arg.(map[string]any) {
			if isObject && has(object, name) && !v.keyword(schema, "required", need, x) {
				return false
			}
		}
		return true
	case "minItems":
		return !isList || len(list) >= int(arg.(float64))
	case "uniqueItems":
		return distinct(list)
	case "items":
		return !slices.ContainsFunc(list, func(e any) bool { return !v.valid(arg.(map[string]any), e) })
	case "required":
		return !isObject || !slices.ContainsFunc(arg.([]any), func(k any) bool { return !has(object, k.(string)) })
	case "minProperties":
		return !isObject || len(object) >= int(arg.(float64))
	case "maxProperties":
		return !isObject || len(object) <= int(arg.(float64))
	case "propertyNames":
		return v.names(arg.(map[string]any), object)
	case "properties", "additionalProperties":
		return v.properties(schema, keyword, object)
	}
	v.t.Fatalf("the validator of this test does not know %s", keyword)
	return false
}

func distinct(list []any) bool {
	for i := range list {
		for j := range i {
			if reflect.DeepEqual(list[i], list[j]) {
				return false
			}
		}
	}
	return true
}

func (v validator) names(schema, object map[string]any) bool {
	for name := range object {
		if !v.valid(schema, name) {
			return false
		}
	}
	return true
}

// properties judges the known ones by their schema and the others by the rest.
func (v validator) properties(schema map[string]any, keyword string, object map[string]any) bool {
	known, _ := schema["properties"].(map[string]any)
	for name, x := range object {
		s, isKnown := known[name].(map[string]any)
		if keyword == "additionalProperties" {
			if rest, ok := schema[keyword].(map[string]any); !isKnown && (!ok || !v.valid(rest, x)) {
				return false
			}
		} else if isKnown && !v.valid(s, x) {
			return false
		}
	}
	return true
}

// The schema and the parser agree on files made of right and of wrong pieces.
func TestSchemaAgrees(t *testing.T) {
	v := validator{t: t}
	if err := json.Unmarshal(guardfile.Schema(), &v.root); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(2, 16))
	agreed := map[bool]int{}
	for range 5_000 {
		file := v.file(rng)
		text, err := json.Marshal(file)
		if err != nil {
			t.Fatal(err)
		}
		var read any
		if err := json.Unmarshal(text, &read); err != nil {
			t.Fatal(err)
		}
		want := v.valid(v.root, read)
		for _, name := range []string{"f.json", "f.yaml"} {
			if _, err := guardfile.Parse(name, text); (err == nil) != want {
				t.Fatalf("the schema says %t, %s says %v: %s", want, name, err, text)
			}
		}
		agreed[want]++
	}
	if agreed[true] < 500 || agreed[false] < 500 {
		t.Errorf("good and bad files: %v, too few of one kind to judge", agreed)
	}
}

// pieces are values of every type; the last belong to time windows and to pipelines.
var pieces = []any{"", "a", "mon", 0, 1, -5, 1.5, true, false, nil, []any{}, []any{"mon"}, []any{"mon", "mon"}, map[string]any{}, "08:30", "24:00", "+02:00", "90s", "1h30m", "${a}", "x${a}"}

// file makes a file by the schema's own properties, with an error now and then.
func (v validator) file(rng *rand.Rand) any {
	g := map[string]any{"when": v.condition(rng, 3)}
	if rng.IntN(20) == 0 {
		g[pick(rng, []string{"description", "wen"})] = pick(rng, pieces)
	}
	file := map[string]any{"guards": map[string]any{pick(rng, []string{"a", "a", "a", "", "b c"}): g}}
	if rng.IntN(20) == 0 {
		file[pick(rng, []string{"$schema", "guard"})] = pick(rng, pieces)
	}
	return file
}

func (v validator) condition(rng *rand.Rand, depth int) any {
	properties := v.root["$defs"].(map[string]any)["condition"].(map[string]any)["properties"].(map[string]any)
	kind := pick(rng, keys(properties))
	c := map[string]any{}
	switch {
	case rng.IntN(40) == 0:
		return pick(rng, pieces)
	case kind == "all" || kind == "any":
		of := []any{}
		for range rng.IntN(3) * min(depth, 1) {
			of = append(of, v.condition(rng, depth-1))
		}
		c[kind] = of
	case kind == "not" && depth > 0:
		c[kind] = v.condition(rng, depth-1)
	default:
		c[kind] = v.leaf(rng, properties[kind].(map[string]any))
	}
	if rng.IntN(40) == 0 {
		c[pick(rng, []string{"lock_free", "lock-free"})] = "a"
	}
	return c
}

// leaf makes fields of a leaf, most of them right by the schema.
func (v validator) leaf(rng *rand.Rand, schema map[string]any) any {
	forms, _ := schema["anyOf"].([]any)
	if forms != nil && rng.IntN(3) == 0 {
		return pick(rng, []any{"a", "a", pick(rng, pieces)})
	}
	if forms != nil {
		schema = forms[1].(map[string]any)
	}
	fields, _ := schema["properties"].(map[string]any)
	leaf := map[string]any{}
	for _, name := range keys(fields) {
		if rng.IntN(4) > 0 {
			leaf[name] = v.piece(rng, fields[name].(map[string]any))
		}
	}
	return leaf
}

// piece is mostly a value that fits.
func (v validator) piece(rng *rand.Rand, schema map[string]any) any {
	for {
		p := pick(rng, pieces)
		raw, _ := json.Marshal(p)
		var read any
		json.Unmarshal(raw, &read)
		if v.valid(schema, read) || rng.IntN(200) == 0 {
			return p
		}
	}
}

func has(o map[string]any, k string) bool { _, ok := o[k]; return ok }

func pick[T any](rng *rand.Rand, of []T) T { return of[rng.IntN(len(of))] }

func keys(o map[string]any) []string {
	names := []string{}
	for k := range o {
		names = append(names, k)
	}
	slices.Sort(names)
	return names
}

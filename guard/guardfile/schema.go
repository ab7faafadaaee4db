package guardfile

import (
	"encoding/json"

	"github.com/holdfast-io/holdfast/guard"
)

// object is a JSON object; its keys are written in order of the alphabet.
type object = map[string]any

// Schema is the JSON Schema (draft 2020-12) of the files, for editors and checks before
// a file is sent. It is made of the table by which [Parse] reads. Parse is stricter in
// what a schema cannot say: the bounds of a file, control characters, the length of
// texts in bytes.
func Schema() []byte {
	entry := strict(object{keyDescription: object{"type": "string"}, keyWhen: ref("condition")}, keyWhen)
	names := object{"minLength": 1, "maxLength": maxName}
	s := strict(object{
		keySchema: object{"type": "string"},
		keyGuards: object{"type": "object", "additionalProperties": entry, "propertyNames": names},
	}, keyGuards)
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "Guards of Holdfast"
	s["$defs"] = object{"condition": conditionSchema()}
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic(err) // the table is ours: texts, numbers, lists and maps
	}
	return append(text, '\n')
}

// strict is an object with these properties and no others.
func strict(properties object, required ...string) object {
	o := object{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		o["required"] = required
	}
	return o
}

func ref(name string) object { return object{"$ref": "#/$defs/" + name} }

func conditionSchema() object {
	list := object{"type": "array", "items": ref("condition")}
	properties := object{
		string(guard.KindAll): describe(list, "Every part is true."),
		string(guard.KindAny): describe(object{"type": "array", "items": ref("condition"), "minItems": 1}, "At least one part is true."),
		string(guard.KindNot): describe(ref("condition"), "The part is false."),
	}
	for _, k := range kinds {
		properties[string(k.kind)] = describe(k.schema(), k.doc)
	}
	s := strict(properties)
	s["minProperties"], s["maxProperties"] = 1, 1
	return s
}

// describe is a copy with a description.
func describe(o object, doc string) object {
	described := object{"description": doc}
	for k, v := range o {
		described[k] = v
	}
	return described
}

func (k *kind) schema() object {
	properties, required, choices := object{}, []string{}, 0
	for _, f := range k.fields {
		properties[f.name] = describe(f.is.schema, f.doc)
		if f.need {
			required = append(required, f.name)
		}
		if f.choice {
			choices++
		}
	}
	s := strict(properties, required...)
	if choices > 0 {
		s["maxProperties"] = len(k.fields) - choices + 1
	}
	if k.choose {
		s["minProperties"] = len(required) + 1
	}
	if k.brief() {
		return object{"anyOf": []any{describe(k.fields[0].is.schema, k.fields[0].doc), s}}
	}
	return s
}

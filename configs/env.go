package configs

import (
	"os"
	"regexp"
	"slices"
	"strings"
)

// readEnv reads the values of MILLRACE_* variables, and the path of the file if MILLRACE_CONFIG names one.
func readEnv(environ []string) (values map[string]given, file string, list []Fault) {
	values = map[string]given{}
	vars := map[string]string{}
	for _, kv := range environ {
		if name, value, ok := strings.Cut(kv, "="); ok && strings.HasPrefix(name, envPrefix) {
			vars[name] = value
		}
	}
	known := []string{envConfig}
	for _, k := range keys() {
		names := []string{k.env()}
		if k.secret() {
			names = append(names, k.env()+fileSuffix)
		}
		known = append(known, names...)
		text, ok := vars[names[0]]
		v := given{value: text, origin: "environment " + names[0]}
		if k.secret() {
			if path, fromFile := vars[names[1]]; fromFile && ok {
				list = append(list, Fault{Key: k.name, Origin: v.origin, Problem: names[1] + " is set, too: one of them is allowed"})
				continue
			} else if fromFile {
				v.origin = "environment " + names[1]
				secret, problem := readSecret(path)
				if problem != "" {
					list = append(list, Fault{Key: k.name, Origin: v.origin, Problem: problem})
					continue
				}
				v.value, ok = secret, true
			}
		}
		if ok {
			values[k.name] = v
		}
	}
	var strangers []string
	for name, value := range vars {
		if !slices.Contains(known, name) && !notOurs(name, value) {
			strangers = append(strangers, name)
		}
	}
	slices.Sort(strangers)
	for _, name := range strangers {
		list = append(list, Fault{Key: name, Origin: "environment", Problem: "unknown variable" + suggest(name, known)})
	}
	return values, vars[envConfig], list
}

// readSecret reads a secret from a file, such as a mounted one. One line end behind it is not part of it.
func readSecret(path string) (secret, problem string) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", "read the secret from " + path + ": " + cause(err)
	}
	secret = strings.TrimSuffix(strings.TrimSuffix(string(content), "\n"), "\r")
	if secret == "" {
		return "", "the file " + path + " is empty"
	}
	return secret, ""
}

// serviceLink matches the variables that Kubernetes adds to the pods beside a service called millrace.
var serviceLink = regexp.MustCompile(`_SERVICE_HOST$|_SERVICE_PORT(_[A-Z0-9_]+)?$|_PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$`)

// notOurs says whether a variable with our prefix is no configuration: switches of failure injection and of the tests,
// and the service links of Kubernetes.
func notOurs(name, value string) bool {
	switch name {
	case "MILLRACE_FAILPOINT", "MILLRACE_SKIP_KAFKA", "MILLRACE_KAFKA_LOG":
		return true
	}
	return strings.HasPrefix(name, "MILLRACE_TEST_") || serviceLink.MatchString(name) ||
		strings.HasSuffix(name, "_PORT") && strings.Contains(value, "://")
}

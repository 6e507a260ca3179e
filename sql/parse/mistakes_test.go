package parse

var mistakes = []struct{ text, want string }{}

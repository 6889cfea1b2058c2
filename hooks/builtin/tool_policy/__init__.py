"""The policy of the guard `tools`: rules, conditions on arguments, and a reader of arguments in a stream."""

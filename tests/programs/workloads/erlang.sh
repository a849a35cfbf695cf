# row Erlang: bash {file}
# needs: erl
export HOME=$PWD
erl -noshell -eval '
    Table = ets:new(table, [set]),
    [ets:insert(Table, {I, integer_to_list(I) ++ "text"}) || I <- lists:seq(1, 300000)],
    Sum = ets:foldl(fun({I, Text}, Sum) -> Sum + I + length(Text) end, 0, Table),
    Sums = fun(N) -> exit({sum, lists:sum([I * N || I <- lists:seq(1, 200000)])}) end,
    Processes = [spawn_monitor(fun() -> Sums(N) end) || N <- lists:seq(1, 6)],
    All = [receive {_, Reference, _, _, {sum, Value}} -> Value end || {_, Reference} <- Processes],
    io:format("~p ~p~n", [Sum, lists:sum(All)]),
    halt().'

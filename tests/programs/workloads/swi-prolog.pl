% row SWI-Prolog: swipl -q -g main -t halt {file}
% needs: swipl
:- dynamic fact/2.

add(A, B, C) :- C is A + B.

main :-
    set_prolog_flag(stack_limit, 2000000000),
    forall(between(1, 300000, I), (atom_concat(key, I, Key), assertz(fact(Key, I)))),
    aggregate_all(sum(Value), fact(_, Value), Facts),
    numlist(1, 1500000, Numbers),
    foldl(add, Numbers, 0, Sum),
    msort(Numbers, Sorted),
    length(Sorted, Length),
    fact(key777, One),
    print([Facts, Sum, Length, One]), nl.

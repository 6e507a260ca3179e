package cepgolden;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Proxy;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.state.KeyedStateStore;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.typeutils.base.StringSerializer;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.cep.configuration.SharedBufferCacheConfig;
import org.apache.flink.cep.nfa.NFA;
import org.apache.flink.cep.nfa.NFAState;
import org.apache.flink.cep.nfa.aftermatch.AfterMatchSkipStrategy;
import org.apache.flink.cep.nfa.compiler.NFACompiler;
import org.apache.flink.cep.nfa.sharedbuffer.SharedBuffer;
import org.apache.flink.cep.nfa.sharedbuffer.SharedBufferAccessor;
import org.apache.flink.cep.pattern.Pattern;
import org.apache.flink.cep.pattern.WithinType;
import org.apache.flink.cep.pattern.conditions.IterativeCondition;
import org.apache.flink.cep.time.TimerService;

/**
 * Reads cases from the standard input, one a line: "pattern | events", and adds what the automaton of Flink's CEP library
 * finds: "| matches | timed out". Events are given in the order of their time, and time passes in steps of 1 ms.
 * The words of a pattern are described in internal/nfa/golden_test.go.
 */
public final class Main {
    private static final int AFTER = 100; // ms that pass behind the last event

    private final String[] words;
    private int at;
    private long within;

    private Main(String text) {
        words = text.trim().split("\\s+");
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            if (line.isBlank() || line.startsWith("#")) {
                System.out.println(line);
                continue;
            }
            String[] parts = line.split("\\|");
            String result;
            try {
                result = run(parts[0], parts[1].trim());
            } catch (Throwable e) {
                result = "error " + e.getClass().getSimpleName() + " |";
            }
            System.out.println(parts[0].trim() + " | " + parts[1].trim() + " | " + result);
        }
        System.exit(0);
    }

    private static String run(String text, String events) throws Exception {
        Main m = new Main(text);
        AfterMatchSkipStrategy skip = AfterMatchSkipStrategy.noSkip();
        if (m.eat("skip")) {
            String to = m.next();
            switch (to) {
                case "none": break;
                case "next": skip = AfterMatchSkipStrategy.skipToNext(); break;
                case "past": skip = AfterMatchSkipStrategy.skipPastLastEvent(); break;
                case "first": skip = AfterMatchSkipStrategy.skipToFirst(m.next()); break;
                case "last": skip = AfterMatchSkipStrategy.skipToLast(m.next()); break;
                default: throw new IllegalArgumentException(to);
            }
            m.eat(";");
        }
        if (m.eat("within")) {
            m.within = Long.parseLong(m.next());
            m.eat(";");
        }
        Pattern<String, String> pattern = m.sequence(skip);
        if (m.within > 0) {
            pattern = pattern.within(Duration.ofMillis(m.within));
        }
        NFA<String> nfa = NFACompiler.compileFactory(pattern, true).createNFA();
        NFAState state = nfa.createInitialNFAState();
        SharedBuffer<String> buffer = new SharedBuffer<>(store(), StringSerializer.INSTANCE, new SharedBufferCacheConfig());
        TimerService clock = () -> 0L;
        List<String> matches = new ArrayList<>();
        List<String> late = new ArrayList<>();
        long now = Long.MIN_VALUE;
        int i = 0;
        String[] list = events.split("\\s+");
        for (String e : list) {
            long time = Long.parseLong(e.substring(e.indexOf('@') + 1));
            if (now == Long.MIN_VALUE) {
                now = time - 1;
            }
            while (now < time) {
                advance(nfa, state, buffer, ++now, skip, matches, late);
            }
            try (SharedBufferAccessor<String> a = buffer.getAccessor()) {
                String value = e.substring(0, e.indexOf('@')) + "#" + i++;
                for (Map<String, List<String>> match : nfa.process(a, state, value, time, skip, clock)) {
                    matches.add(show(match, time));
                }
            }
        }
        for (long end = now + AFTER; now < end; ) {
            advance(nfa, state, buffer, ++now, skip, matches, late);
        }
        buffer.releaseCacheStatisticsTimer();
        return String.join("; ", matches) + " | " + String.join("; ", late);
    }

    private static void advance(NFA<String> nfa, NFAState state, SharedBuffer<String> buffer, long now, AfterMatchSkipStrategy skip, List<String> matches, List<String> late) throws Exception {
        try (SharedBufferAccessor<String> a = buffer.getAccessor()) {
            Tuple2<Collection<Map<String, List<String>>>, Collection<Tuple2<Map<String, List<String>>, Long>>> r = nfa.advanceTime(a, state, now, skip);
            for (Map<String, List<String>> match : r.f0) {
                matches.add(show(match, now));
            }
            for (Tuple2<Map<String, List<String>>, Long> t : r.f1) {
                late.add(show(t.f0, t.f1));
            }
        }
    }

    private static String show(Map<String, List<String>> match, long time) {
        StringBuilder b = new StringBuilder("@" + time);
        match.keySet().stream().sorted().forEach(stage -> {
            b.append(' ').append(stage).append('=');
            String comma = "";
            for (String e : match.get(stage)) {
                b.append(comma).append(e.substring(e.indexOf('#') + 1));
                comma = ",";
            }
        });
        return b.toString();
    }

    private boolean eat(String word) {
        if (at < words.length && words[at].equals(word)) {
            at++;
            return true;
        }
        return false;
    }

    private String next() {
        return words[at++];
    }

    @SuppressWarnings("unchecked")
    private Pattern<String, String> sequence(AfterMatchSkipStrategy skip) {
        Pattern<String, String> p = null;
        do {
            String link = next();
            if (eat("(")) {
                Pattern<String, String> group = sequence(AfterMatchSkipStrategy.noSkip());
                next(); // )
                switch (link) {
                    case "begin": p = Pattern.begin(group, skip); break;
                    case "next": p = p.next(group); break;
                    case "by": p = p.followedBy(group); break;
                    case "any": p = p.followedByAny(group); break;
                    default: throw new IllegalArgumentException(link);
                }
            } else {
                String name = next();
                switch (link) {
                    case "begin": p = Pattern.begin(name, skip); break;
                    case "next": p = p.next(name); break;
                    case "by": p = p.followedBy(name); break;
                    case "any": p = p.followedByAny(name); break;
                    case "notnext": p = p.notNext(name); break;
                    case "notby": p = p.notFollowedBy(name); break;
                    default: throw new IllegalArgumentException(link);
                }
                p = p.where(condition(next()));
            }
            while (at < words.length && !words[at].equals(";") && !words[at].equals(")")) {
                modify(p, next());
            }
        } while (eat(";"));
        return p;
    }

    private static void modify(Pattern<String, String> p, String word) {
        if (word.equals("+")) {
            p.oneOrMore();
        } else if (word.equals("?")) {
            p.optional();
        } else if (word.equals("greedy")) {
            p.greedy();
        } else if (word.equals("consec")) {
            p.consecutive();
        } else if (word.equals("comb")) {
            p.allowCombinations();
        } else if (word.startsWith("until=")) {
            p.until(condition(word.substring(6)));
        } else if (word.startsWith("win=")) {
            p.within(Duration.ofMillis(Long.parseLong(word.substring(4))), WithinType.PREVIOUS_AND_CURRENT);
        } else if (word.startsWith("{")) {
            String[] n = word.substring(1, word.length() - 1).split(",", -1);
            if (n.length == 1) {
                p.times(Integer.parseInt(n[0]));
            } else if (n[1].isEmpty()) {
                p.timesOrMore(Integer.parseInt(n[0]));
            } else {
                p.times(Integer.parseInt(n[0]), Integer.parseInt(n[1]));
            }
        } else {
            throw new IllegalArgumentException(word);
        }
    }

    /** Letters, or . for any; then >stage: the value is greater than that of the last event of the stage, if there is one. */
    private static IterativeCondition<String> condition(String text) {
        int i = text.indexOf('>');
        String letters = i < 0 ? text : text.substring(0, i);
        String stage = i < 0 ? null : text.substring(i + 1);
        return new IterativeCondition<String>() {
            @Override
            public boolean filter(String event, Context<String> context) throws Exception {
                if (!letters.equals(".") && letters.indexOf(event.charAt(0)) < 0) {
                    return false;
                }
                if (stage == null) {
                    return true;
                }
                String last = null;
                for (String e : context.getEventsForPattern(stage)) {
                    last = e;
                }
                return last == null || value(event) > value(last);
            }
        };
    }

    private static int value(String event) {
        return Integer.parseInt(event.substring(1, event.indexOf('#')));
    }

    /** Keyed state in memory, as far as the shared buffer uses it. */
    private static KeyedStateStore store() {
        return (KeyedStateStore) Proxy.newProxyInstance(Main.class.getClassLoader(), new Class<?>[] {KeyedStateStore.class}, (self, method, args) -> {
            if (!method.getName().equals("getMapState")) {
                throw new UnsupportedOperationException(method.getName());
            }
            Map<Object, Object> map = new HashMap<>();
            return Proxy.newProxyInstance(Main.class.getClassLoader(), new Class<?>[] {MapState.class}, (s, m, a) -> {
                switch (m.getName()) {
                    case "get": return map.get(a[0]);
                    case "put": map.put(a[0], a[1]); return null;
                    case "putAll": map.putAll((Map<?, ?>) a[0]); return null;
                    case "remove": map.remove(a[0]); return null;
                    case "contains": return map.containsKey(a[0]);
                    case "entries": return map.entrySet();
                    case "keys": return map.keySet();
                    case "values": return map.values();
                    case "iterator": return map.entrySet().iterator();
                    case "isEmpty": return map.isEmpty();
                    case "clear": map.clear(); return null;
                    default: throw new UnsupportedOperationException(m.getName());
                }
            });
        });
    }
}

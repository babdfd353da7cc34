# Sourced by the scripts that time several file systems in turns (A B A B ...): arguments, turns, and the table with the ratios of pairs.
# Turns that lie seconds apart see the same machine, so ratios of pairs hold where rates of different hours do not.
#
# A script sets STEPS (all that it knows) and DEFAULT_STEPS (and PLACES=urls if a DIR is none), calls `turns_begin "$@"`, defines `run STEP TURN NAME DIR`, which notes results,
# and calls `turns` and `turns_table`.
set -euo pipefail
export LC_ALL=C.UTF-8

usage() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 2; }
fail() { echo "${0##*/}: $*" >&2; exit 1; }

# turns_begin ARGUMENT...: sets steps, names, dirs, turns, pause, results, can_drop; goes on in the ordinary scheduling class.
turns_begin() {
    if [ "$(chrt -p $$ 2>/dev/null | sed -n 's/.*policy: //p')" != SCHED_OTHER ] && [ -z "${TURNS_ORDINARY-}" ]; then
        TURNS_ORDINARY=1 exec chrt -o 0 "$0" "$@"
    fi
    local word
    steps=() names=() dirs=()
    for word; do
        case $word in
            *=*) names+=("${word%%=*}"); dirs+=("${word#*=}") ;;
            *) case " $STEPS " in *" $word "*) steps+=("$word") ;; *) usage ;; esac ;;
        esac
    done
    [ "${#names[@]}" -ge 1 ] || usage
    # Words of the list are steps.
    # shellcheck disable=SC2206
    [ "${#steps[@]}" -ge 1 ] || steps=($DEFAULT_STEPS)
    [ "${PLACES-}" = urls ] || for word in "${dirs[@]}"; do [ -d "$word" ] || fail "$word is no directory"; done
    turns=${TURNS:-3} pause=${PAUSE:-1.3}
    results=$(mktemp)
    trap 'rm -f "$results"' EXIT
    can_drop=""
    if [ -w /proc/sys/vm/drop_caches ]; then can_drop=1; fi
}

# rest: long enough for caches with a time, and without those that have none.
rest() {
    sleep "$pause"
    [ -z "$can_drop" ] || { sync; echo 3 > /proc/sys/vm/drop_caches; }
}

# note TURN NAME WORK VALUE UNIT
note() { printf '%s\t%s\t%s\t%s\t%s\n' "$@" >> "$results"; }

turns() {
    local step turn place
    for step in "${steps[@]}"; do
        for ((turn = 1; turn <= turns; turn++)); do
            for place in "${!names[@]}"; do
                echo "$step, turn $turn of $turns: ${names[place]}" >&2
                run "$step" "$turn" "${names[place]}" "${dirs[place]}"
            done
        done
    done
    [ -z "${OUT-}" ] || { echo "turn,system,work,value,unit"; sed 's/"/""/g; s/\t/","/g; s/^/"/; s/$/"/' "$results"; } > "$OUT"
}

# In which circumstances the turns were run.
turns_circumstances() {
    printf '%s' "In turns, $turns each, $(uname -r), $(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg) at the end, ordinary scheduling class."
}

# turns_table: medians (smallest-greatest) of each, and of the ratios of pairs of turns, the first name to each other one.
turns_table() {
    awk -F '\t' -v all="${names[*]}" '
    function sorted(list, count,   i, j, value) {
        for (i = 2; i <= count; i++) {
            value = list[i]
            for (j = i - 1; j > 0 && list[j] > value; j--) list[j + 1] = list[j]
            list[j + 1] = value
        }
    }
    function shown(value) { return value >= 100 ? sprintf("%.0f", value) : sprintf("%.2f", value) }
    function spread(list, count,   middle) {
        if (count == 0) return "-"
        sorted(list, count)
        middle = count % 2 ? list[(count + 1) / 2] : (list[count / 2] + list[count / 2 + 1]) / 2
        return sprintf("%s (%s–%s)", shown(middle), shown(list[1]), shown(list[count]))
    }
    BEGIN { systems = split(all, name, " ") }
    {
        if (!($3 in unit)) { order[++works] = $3; unit[$3] = $5 }
        value[$3, $2, $1] = $4
        if ($1 > turns) turns = $1
    }
    END {
        head = "| work |"; rule = "|---|"
        for (s = 1; s <= systems; s++) { head = head " " name[s] " |"; rule = rule "---|" }
        for (s = 2; s <= systems; s++) { head = head " " name[1] " / " name[s] ", pairs |"; rule = rule "---|" }
        print head; print rule
        for (w = 1; w <= works; w++) {
            work = order[w]
            line = "| " work ", " unit[work] " |"
            for (s = 1; s <= systems; s++) {
                count = 0
                for (t = 1; t <= turns; t++) if ((work, name[s], t) in value) list[++count] = value[work, name[s], t]
                line = line " " spread(list, count) " |"
            }
            for (s = 2; s <= systems; s++) {
                count = 0
                for (t = 1; t <= turns; t++)
                    if ((work, name[1], t) in value && (work, name[s], t) in value && value[work, name[s], t] > 0)
                        list[++count] = value[work, name[1], t] / value[work, name[s], t]
                line = line " " spread(list, count) " |"
            }
            print line
        }
    }' "$results"
}

# What people do in a shell, in the directory that is given. The test runs it in a directory of the
# kernel and below the prefix, and compares what it prints and what it leaves.
set -eu
unset MAKEFLAGS MAKELEVEL MFLAGS # of a make around the test: its -w would print the directory
cd "$1"
mkdir -p src sub/deep
cat > src/main.c <<'C'
#include <stdio.h>
#include "part.h"
int main(void) { printf("built %d\n", part()); return 0; }
C
echo 'int part(void);' > src/part.h
echo 'int part(void) { return 7; }' > src/part.c
printf 'prog: main.o part.o\n\tcc -o $@ main.o part.o\n%%.o: %%.c part.h\n\tcc -c -o $@ $<\n' > src/Makefile
(cd src && make -s -j2 && ./prog && make | grep -c 'up to date' && rm prog *.o)
printf '#!/bin/sh\necho "script $1 $0"\n' > s.sh && chmod +x s.sh && ./s.sh argument
seq 1 3000 > numbers && sort -rn numbers > backwards && sort -n backwards -o backwards && cmp numbers backwards
sort -rn numbers | head -1 && tail -1 numbers && wc -l < numbers && grep -c 7 numbers
dd if=numbers of=copy bs=1000 conv=fsync 2> /dev/null && cmp numbers copy && md5sum < copy
tar cf t.tar src && mkdir x && tar xf t.tar -C x && diff -r src x/src && rm t.tar
cp -r src copied && cp -p s.sh s2.sh && diff -r src copied && mv copied moved && ls moved && rm -r moved
for i in 1 2 3; do echo "line $i" >> appended; done
exec 5> five; echo five >&5; exec 5>&-
while read -r line; do echo "got $line"; done < appended
{ echo one; /bin/echo two; sh -c 'echo three'; } > both
(echo sub; /bin/echo shell) >> both && cat both
cat > here <<H
a document
H
cat here - < five
sed -i s/five/FIVE/ five && cat five && tr A-Z a-z < five
ln -s numbers sym && ln numbers hard && readlink sym && stat -c '%h %s %F' hard && wc -c < sym && rm hard
touch -d '2001-01-01 UTC' old && stat -c %Y old && truncate -s 100 copy && stat -c %s copy && chmod 640 copy && stat -c %a copy
find . -type f -name '*.c' | sort && find . -type d | sort && du -s --apparent-size -B1 numbers | cut -f1
ls -lR src | grep -c '^-' && echo sub/* */*.h && ls -d s*
gzip -k numbers && zcat numbers.gz | cmp - numbers && rm numbers.gz
rmdir sub/nothing 2>&1 | sed 's/.*: //'; cat nothing 2>&1 | sed 's/.*: //'; mkdir sub 2>&1 | sed 's/.*: //'
cd sub && cd deep && cd ../.. && pwd -P | sed 's|.*/||' && cp -r x/src sub/deep && (cd sub/deep/src && ls ../../..)
bash -c 'left=$(cd / && pwd -P) && echo "$left"'
cat /dev/stdin < five && echo by name >> /dev/stdout && wc -c /dev/fd/0 < five && mv five nothing/ 2>&1 | sed 's/.*: //'
# What is not everywhere.
has() { command -v "$1" > /dev/null; }
if has zip && has unzip; then zip -qr z.zip src sub && zip -q z.zip both && unzip -tq z.zip && rm z.zip; fi
if has rsync; then rsync -aH --delete src/ rs && rsync -aci --delete src/ rs && diff -r src rs && rm -r rs; fi
if has sqlite3; then
    sqlite3 db 'create table t(a); insert into t values(1),(2); begin; update t set a=9; rollback; select sum(a) from t;'
    sqlite3 db '.backup copy.db' 'pragma integrity_check' && rm db copy.db
fi
if has perl; then perl -i.before -pe 's/got/GOT/; s/line/LINE/' appended && cat appended appended.before; fi
if has vim; then vim -es -u NONE -i NONE -c '%s/LINE/line/' -c wq appended < /dev/null && cat appended; fi
if has git; then
    git init -q repo && cd repo && git config user.name n && git config user.email e && cp ../both . && git add both && git commit -qm one
    echo more >> both && git commit -qam two && git gc -q && git fsck && git clone -q . ../clone && git -C ../clone log --format=%s
    cd .. && rm -rf repo clone
fi
test -d sub -a -f five -a -L sym -a ! -e nothing && rm -rf x && echo "all is well"

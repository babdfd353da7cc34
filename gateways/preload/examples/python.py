"""What Python programs do with files, in a directory that does not exist yet."""
import fcntl, glob, mmap, os, pathlib, shutil, subprocess, sys, tempfile, threading
def tell(kind,error,trace):
    sys.__excepthook__(kind,error,trace)
    if isinstance(error,subprocess.CalledProcessError): print("it said:",error.output,error.stderr,file=sys.stderr)
sys.excepthook=tell # what a program that fails has said would be lost otherwise
r=pathlib.Path(sys.argv[1]); r.mkdir(); os.chdir(r)
assert os.getcwd()==str(r), os.getcwd()
(r/"a.txt").write_text("hello\nworld\n")
assert open("a.txt").read()=="hello\nworld\n"
with open("a.txt","a") as f: f.write("more\n")
assert (r/"a.txt").stat().st_size==17
with open("a.txt","r+b") as f:
    f.seek(6); f.write(b"WORLD"); f.seek(0); assert f.read()==b"hello\nWORLD\nmore\n"; f.truncate(5)
assert os.path.getsize("a.txt")==5
shutil.copy2("a.txt","b.txt"); shutil.copytree("/usr/include/linux/netfilter", r/"tree"); 
assert len(list((r/"tree").rglob("*.h")))==len(list(pathlib.Path("/usr/include/linux/netfilter").rglob("*.h")))
assert sorted(glob.glob("*.txt"))==["a.txt","b.txt"]
with tempfile.TemporaryDirectory(dir=r) as d:
    with tempfile.NamedTemporaryFile(dir=d) as f: f.write(b"x"*100000); f.flush(); assert os.stat(f.name).st_size==100000
    fd,n=tempfile.mkstemp(dir=d); os.write(fd,b"1"); os.close(fd)
os.symlink("/etc/hostname","abs"); assert open("abs").read()==open("/etc/hostname").read()
os.symlink(str(r/"a.txt"),"absin"); assert open("absin").read()=="hello"
assert os.path.realpath("absin")==str(r/"a.txt"), os.path.realpath("absin")
os.symlink("../../../../etc/hostname","up"); assert os.path.realpath("up") == "/etc/hostname"
with open("a.txt","rb") as f:
    m=mmap.mmap(f.fileno(),0,prot=mmap.PROT_READ); assert m[:]==b"hello"; m.close()
try:
    with open("a.txt","r+b") as f: mmap.mmap(f.fileno(),0); assert 0
except OSError as e: assert e.errno == 19
out=subprocess.run(["cat","a.txt"],capture_output=True,cwd=r); assert out.stdout==b"hello",out
with open("out","w") as f: subprocess.run(["echo","sub"],stdout=f,check=True)
assert open("out").read()=="sub\n"
with open("out") as f: assert subprocess.run(["cat"],stdin=f,capture_output=True,check=True).stdout==b"sub\n"
assert subprocess.check_output("cat out | sort > srt; cat srt",shell=True)==b"sub\n"
assert os.popen("cat out").read()=="sub\n"; os.system("echo sys > sysf"); assert open("sysf").read()=="sys\n"
pid=os.fork()
if pid==0:
    open("child","w").write("c"); os._exit(0)
assert os.waitpid(pid,0)[1]==0 and open("child").read()=="c"
f=open("shared","w"); f.write("parent\n"); f.flush(); pid=os.fork()
if pid==0:
    f.write("child\n"); f.flush(); os._exit(0)
assert os.waitpid(pid,0)[1]==0; f.write("again\n"); f.close(); assert open("shared").read()=="parent\nchild\nagain\n", open("shared").read()
def work(i):
    for k in range(20):
        p=r/f"t{i}-{k}"; p.write_text(str(i)); assert p.read_text()==str(i); p.unlink()
ts=[threading.Thread(target=work,args=(i,)) for i in range(4)]; [t.start() for t in ts]; [t.join() for t in ts]
d=os.open(".",os.O_RDONLY); s=os.stat("a.txt",dir_fd=d); assert s.st_size==5; os.mkdir("dd",dir_fd=d); os.rmdir("dd",dir_fd=d); 
assert sorted(os.listdir(d))==sorted(os.listdir(".")); os.fchdir(d); assert os.getcwd()==str(r); os.close(d)
os.utime("a.txt",(1,2)); assert os.stat("a.txt").st_mtime==2; os.chmod("a.txt",0o600); assert os.stat("a.txt").st_mode&0o777==0o600
os.setxattr("a.txt","user.k",b"v"); assert os.getxattr("a.txt","user.k")==b"v" and os.listxattr("a.txt")==["user.k"]
os.rename("a.txt","c.txt"); assert not os.path.exists("a.txt") and os.access("c.txt",os.R_OK)
assert os.statvfs(".").f_blocks > 0 and shutil.disk_usage(".").total > 0
with open("lk","w") as f:
    fcntl.flock(f,fcntl.LOCK_EX|fcntl.LOCK_NB)
    with open("lk","w") as g:
        try: fcntl.flock(g,fcntl.LOCK_EX|fcntl.LOCK_NB); assert 0
        except BlockingIOError: pass
    fcntl.lockf(f,fcntl.LOCK_EX|fcntl.LOCK_NB)
    out=subprocess.run([sys.executable,"-c","import fcntl;f=open('lk','w');fcntl.lockf(f,fcntl.LOCK_EX|fcntl.LOCK_NB)"],capture_output=True); assert out.returncode==1 and b"BlockingIOError" in out.stderr, out
os.chdir("/"); out=tempfile.mkdtemp(); shutil.move(str(r/"tree"),out); assert os.path.isdir(out+"/tree"); shutil.move(out+"/tree",str(r/"back")); os.rmdir(out)
shutil.rmtree(r); assert not r.exists(); print("all is well")

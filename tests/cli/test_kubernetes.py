#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""contrib/kubernetes: the manifests have the form that the API wants, agree with each other and with what is installed;
cudaw cdi, and the script of the job that is preempted.
"""
import glob
import json
import os
import re
import subprocess

from clilib import BUILD, CUDAW, Directory, contains, cudaw, equal, installed_copy, main, scratch
from harness import TESTS, Skip, check

try:
    import yaml
except ImportError:
    yaml = None

REPOSITORY = os.path.dirname(TESTS)
CONTRIB = os.path.join(REPOSITORY, "contrib", "kubernetes")
SIMPLE = {"str": str, "int": int, "bool": bool, "float": (int, float), "dict": dict, "object": object,
          "datetime": str, "IntOrString": (int, str)}
EXPRESSION = re.compile(r"\b(?:Object(?:\.[a-zA-Z]+)*|JSONPatch)\{")

with open(os.path.join(TESTS, "kubernetes", "schemas.json"), encoding="ascii") as schemas:
    SCHEMAS = json.load(schemas)


def manifests():
    """(file name, object) of all."""
    if yaml is None:
        raise Skip("no Python package yaml (Debian: python3-yaml)")
    found = []
    for path in sorted(glob.glob(os.path.join(CONTRIB, "*.yaml"))):
        with open(path, encoding="utf-8") as file:
            found += [(os.path.basename(path), value) for value in yaml.safe_load_all(file)]
    check(len(found) > 8, f"the manifests are {found}")
    return found


def faults(kind, value, place):
    """What is wrong in @value, which is to be a @kind."""
    match = re.fullmatch(r"(list|dict)\[(?:str, )?(.*)\]", kind, re.IGNORECASE)
    if match and re.search(r"\.(limits|requests)$", place):
        return faults("dict", value, place)     # quantities, which are numbers or words
    if match and match[1].lower() == "dict":
        if not isinstance(value, dict):
            return [f"{place}: expected an object, found {value!r}"]
        return [fault for key, one in value.items() for fault in faults(match[2], one, f"{place}.{key}")]
    if match:
        if not isinstance(value, list):
            return [f"{place}: expected a list, found {value!r}"]
        return [fault for i, one in enumerate(value) for fault in faults(match[2], one, f"{place}[{i}]")]
    if kind in SCHEMAS["definitions"]:
        return faults_of_object(SCHEMAS["definitions"][kind], value, place)
    wanted = SIMPLE.get(kind)
    if wanted is None:
        return [f"{place}: there is no schema of {kind}: tests/kubernetes/make_schemas.py makes it"]
    wrong = not isinstance(value, wanted) or (isinstance(value, bool) and kind not in ("bool", "object"))
    return [f"{place}: expected {kind}, found {value!r}"] if wrong else []


def faults_of_object(schema, value, place):
    if not isinstance(value, dict):
        return [f"{place}: expected an object, found {value!r}"]
    found = [f"{place}: {key} is missing" for key in schema["required"] if key not in value]
    for key, one in value.items():
        kind = schema["fields"].get(key)
        found += faults(kind, one, f"{place}.{key}") if kind else [f"{place}: there is no field {key}"]
    return found


def faults_of(name, value):
    kind = SCHEMAS["kinds"].get(f"{value.get('apiVersion')} {value.get('kind')}")
    return faults(kind, value, name) if kind else [f"{name}: there is no {value.get('apiVersion')} {value.get('kind')}"]


def test_they_are_what_the_api_wants():
    for name, value in manifests():
        equal(faults_of(name, value), [], name)


def test_what_the_check_finds():
    pod, = (value for name, value in manifests() if name == "pod.yaml")
    container = pod["spec"]["containers"][0]
    for change, fault in ((lambda: container.update(volumeMount=[]), "there is no field volumeMount"),
                          (lambda: container.pop("name"), "name is missing"),
                          (lambda: container.update(command="python"), "expected a list, found 'python'"),
                          (lambda: container["resources"]["limits"].update({"nvidia.com/gpu": 1}), None),
                          (lambda: pod["spec"]["volumes"][0]["hostPath"].update(path=7), "expected str, found 7"),
                          (lambda: pod.update(apiVersion="v2"), "there is no v2 Pod")):
        saved = json.dumps(pod)
        change()
        found = faults_of("pod", pod)
        check(not found if fault is None else any(fault in one for one in found), f"{fault}: {found}")
        pod.clear()
        pod.update(json.loads(saved))
        container = pod["spec"]["containers"][0]


def test_the_policy_in_its_older_version():
    """As its comment says, 1.34 and 1.35 take it with another apiVersion."""
    for name, value in manifests():
        if name == "inject.yaml":
            value["apiVersion"] = "admissionregistration.k8s.io/v1beta1"
            equal(faults_of(name, value), [], name)


def as_json(text):
    """The value of an expression without variables."""
    return json.loads(re.sub(r"([{,]\s*)([a-zA-Z]+):", r'\1"\2":', EXPRESSION.sub("{", text)))


def as_object(expression):
    """The value that the expression of an ApplyConfiguration makes of a pod with one container."""
    text = expression.replace("object.spec.containers.map(c, ", "[").replace("c.name", '"train"')
    return as_json(re.sub(r"\}\)(\s*\}\s*\}\s*)$", r"}]\1", text))


def as_patch(expression):
    """The operation that the expression of a JSONPatch makes of a pod with one container."""
    match = re.fullmatch(r"object\.spec\.containers\.filter\(.*\)\.map\(c, (.*)\)", expression, re.DOTALL)
    return as_json(match[1].replace('" + string(object.spec.containers.indexOf(c)) + "', "0"))


def types_are_right(expression):
    """Each Object.a.b{ stands where its path says."""
    path = []
    for match in re.finditer(r"(?:Object((?:\.[a-zA-Z]+)*)|JSONPatch)?\{|\}", expression):
        if match[0] == "}":
            path.pop()
        else:
            path.append(match[1])
            outer = path[-2] if len(path) > 1 else None
            check(outer is None or match[1].rpartition(".")[0] == outer, f"{match[0]} is in Object{outer}")
    equal(path, [], "what is open")


def atomic_parts(value, place=""):
    """What the API server refuses in an ApplyConfiguration: structs and lists that can only be set as a whole."""
    if isinstance(value, list):
        own = [place] if any(isinstance(one, str) for one in value) else []
        return own + [part for one in value for part in atomic_parts(one, place)]
    if not isinstance(value, dict):
        return []
    return [part for key, one in value.items()
            for part in ([key] if re.search("fieldRef|FieldRef|KeyRef", key) else []) + atomic_parts(one, key)]


def test_the_policy_makes_the_pod_of_the_example():
    """What the expressions add are the mounts and variables that pod.yaml writes out, and the API takes them."""
    policy, = (value for name, value in manifests() if value["kind"] == "MutatingAdmissionPolicy")
    applied, patched = policy["spec"]["mutations"]
    expressions = applied["applyConfiguration"]["expression"], patched["jsonPatch"]["expression"]
    for expression in expressions:
        types_are_right(expression)
    made = as_object(expressions[0])
    equal(atomic_parts(made), [], "what the API server refuses")
    pod, = (value for name, value in manifests() if name == "pod.yaml")
    equal(made["spec"]["volumes"], pod["spec"]["volumes"], "the volumes")
    found, wanted = made["spec"]["containers"][0], pod["spec"]["containers"][0]
    patch = as_patch(expressions[1])
    equal((patch["op"], patch["path"]), ("add", "/spec/containers/0/env/-"), "the patch")
    found["env"].append(patch["value"])
    equal((found["env"], found["volumeMounts"]), (wanted["env"], wanted["volumeMounts"]), "the container")
    equal(faults_of("made", {**made, "apiVersion": "v1", "kind": "Pod"}), [], "what is made")
    equal(sorted(atomic_parts(pod)), ["command", "fieldRef"], "what it would refuse of the example")


def test_mounts_have_volumes():
    for name, value in manifests():
        spec = value.get("spec", {})
        spec = spec.get("template", {}).get("spec", spec)
        volumes = {volume["name"] for volume in spec.get("volumes", [])}
        used = {mount["name"] for container in spec.get("containers", []) + spec.get("initContainers", [])
                for mount in container.get("volumeMounts", [])}
        equal((name, used), (name, volumes), "the mounts")


def test_they_are_of_this_version():
    with open(os.path.join(REPOSITORY, "Makefile"), encoding="utf-8") as file:
        version = re.search(r"^VERSION := (\S+)", file.read(), re.MULTILINE)[1]
    for path in glob.glob(os.path.join(CONTRIB, "..", "*", "*")):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        equal(set(re.findall(r"cudaw[-:](\d+\.\d+\.\d+)", text)) - {version}, set(), path)


# What the Container Device Interface 0.3.0 has of the parts that we use.
CDI = {"": {"cdiVersion", "kind", "devices"}, "devices": {"name", "containerEdits"},
       "containerEdits": {"env", "mounts"}, "mounts": {"hostPath", "containerPath", "options"}}


def check_cdi(value, place=""):
    for one in value if isinstance(value, list) else [value]:
        equal(set(one), CDI[place], f"the keys of {place}")
        for key, inner in one.items():
            if key in CDI:
                check_cdi(inner, key)
            else:
                check(isinstance(inner, str) or all(isinstance(text, str) for text in inner), f"{key} is {inner!r}")


def test_cdi():
    home = scratch()
    command = installed_copy(home)
    path = os.path.join(home, "cudaw.json")
    equal(cudaw("cdi", "--output", path, command=command).code, 0, "the exit code")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    equal(text[-2:], "}\n", "the end of the file")
    equal(cudaw("cdi", command=command).out, text, "what it prints")
    spec = json.loads(text)
    check_cdi(spec)
    equal((spec["cdiVersion"], spec["kind"], [device["name"] for device in spec["devices"]]),
          ("0.3.0", "cudaw.io/library", ["pause", "turns"]), "the devices")
    for device in spec["devices"]:
        edits = device["containerEdits"]
        hosts = {mount["containerPath"]: mount["hostPath"] for mount in edits["mounts"]}
        env = dict(text.split("=", 1) for text in edits["env"])
        preload = env.pop("LD_PRELOAD")
        # As the container sees it, and where the command in it looks for it.
        directory, name = os.path.split(preload)
        check(os.path.exists(os.path.join(hosts[directory], name)), f"{preload} is there")
        equal(os.path.realpath(hosts["/opt/cudaw/bin/cudaw"]), os.path.realpath(command), "the command")
        equal(os.path.dirname(os.path.dirname(directory)), "/opt/cudaw", "beside the command")
        turns = device["name"] == "turns"
        equal((env, hosts.get("/run/cudaw")), ({"CUDAW_TURNS": "node"} if turns else {},
                                               "/run/cudaw" if turns else None), device["name"])
        equal({mount["options"][-1] for mount in edits["mounts"]}, {"ro"}, "who may write")
    contains(cudaw("cdi", command=installed_copy(scratch(), faces=False)).err, "No such file or directory")
    equal(cudaw("cdi", "x").code, 2, "an argument")


def test_the_script_of_the_job():
    """It begins a job with a high process id, and ends as the job does."""
    text, = (value["data"]["job.sh"] for name, value in manifests() if "job.sh" in value.get("data", {}))
    if os.geteuid() != 0:
        raise Skip("needs root")
    if os.environ.get("SANITIZE"):
        raise Skip("the shell cannot load what is built so")
    home = scratch()
    with open(os.path.join(home, "job.sh"), "w", encoding="utf-8") as file:
        file.write(text.replace("/opt/cudaw/bin/cudaw", CUDAW).replace("/snapshot", home))
    subprocess.run(["sh", "-n", os.path.join(home, "job.sh")], check=True)
    Directory()
    inside = ["unshare", "--pid", "--fork", "--mount-proc", "sh", os.path.join(home, "job.sh")]
    if subprocess.run([*inside[:-2], "true"], check=False, capture_output=True).returncode:
        raise Skip("no PID namespace can be made here")
    env = {**os.environ, "CUDAW_REAL_LIBCUDA": os.path.join(BUILD, "tests", "sim", "libcuda.so.1")}
    for script, code in (("echo $$ > $0/pid", 0), ("exit 3", 3)):
        done = subprocess.run([*inside, "sh", "-c", script, home], env=env, check=False, timeout=120)
        equal(done.returncode, code, f"the exit code of {script}")
        if code == 0:
            with open(os.path.join(home, "pid"), encoding="ascii") as file:
                check(int(file.read()) > 300, "its process id")


if __name__ == "__main__":
    main()

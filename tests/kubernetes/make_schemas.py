#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write schemas.json anew: of each object that the manifests in contrib/kubernetes use, the names and types of all
fields, and which are required, as the package "kubernetes" of PyPI has them from the API. It is for whoever changes a
manifest so that it uses another object; the tests need no package and no network.

usage: make_schemas.py      (with the package, and PyYAML: pip install kubernetes)
"""
import glob
import json
import os
import re

import kubernetes
import yaml
from kubernetes.client import models

HERE = os.path.dirname(os.path.abspath(__file__))
MANIFESTS = os.path.join(HERE, "..", "..", "contrib", "kubernetes", "*.yaml")
# Beside those that are used, so that a manifest can be changed for them.
ALSO = [("admissionregistration.k8s.io/v1beta1", "MutatingAdmissionPolicy"),
        ("admissionregistration.k8s.io/v1beta1", "MutatingAdmissionPolicyBinding")]


def model_of(version, kind):
    return f"V{version.rpartition('/')[2][1:]}{kind}"


def definition(name):
    model = getattr(models, name)
    fields = {model.attribute_map[key]: kind for key, kind in model.openapi_types.items()}
    required = [model.attribute_map[key] for key, field in model.model_fields.items() if field.is_required()]
    return {"fields": fields, "required": sorted(required)}


def collect(name, value, found):
    """The definitions of @value, which is a @name, and of all that it has."""
    match = re.fullmatch(r"(?:list|List)\[(.*)\]", name)
    if match:
        for one in value:
            collect(match[1], one, found)
    elif hasattr(models, name):
        found.setdefault(name, definition(name))
        for key, one in value.items():
            kind = found[name]["fields"].get(key)
            if kind and isinstance(one, (dict, list)):
                collect(kind, one, found)


def main():
    found, kinds = {}, {}
    for path in sorted(glob.glob(MANIFESTS)):
        with open(path, encoding="utf-8") as file:
            for value in yaml.safe_load_all(file):
                name = model_of(value["apiVersion"], value["kind"])
                kinds[f"{value['apiVersion']} {value['kind']}"] = name
                collect(name, value, found)
                for version, kind in ALSO:
                    if kind == value["kind"]:
                        kinds[f"{version} {kind}"] = model_of(version, kind)
                        collect(model_of(version, kind), value, found)
    lines = [f" {json.dumps(name)}: {json.dumps(found[name])}" for name in sorted(found)]
    with open(os.path.join(HERE, "schemas.json"), "w", encoding="ascii") as file:
        file.write(f'{{"version": {json.dumps(kubernetes.__version__)},\n"kinds": {json.dumps(kinds)},\n')
        file.write('"definitions": {\n' + ",\n".join(lines) + "\n}}\n")


main()

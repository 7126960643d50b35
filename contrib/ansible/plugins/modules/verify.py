#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright (c) the hugeleaf developers
# SPDX-License-Identifier: MIT OR Apache-2.0

from __future__ import annotations

DOCUMENTATION = r'''
module: verify
short_description: Check that every service has its huge pages
version_added: 0.1.0
description:
  - Runs C(hugeleaf verify). It checks that every service has the huge pages that it requests, and that it would get
    them again after a restart. Changes nothing.
  - Fails on problems and warnings. Notes do not fail it.
author: The hugeleaf developers (@hugeleaf)
options:
  since:
    description: Ignore lines of the kernel log before this time, such as V(2h) or V(2026-11-21T10:00:00Z).
    type: str
  program:
    description: The program, as a path or as a name in C(PATH), C(/usr/local/bin) or C(/usr/bin).
    type: str
    default: hugeleaf
attributes:
  check_mode:
    description: Runs in check mode as otherwise.
    support: full
  diff_mode:
    description: Makes no changes, and returns no differences.
    support: none
  platform:
    description: Needs Linux. Run it as root, because other users cannot read every process.
    platforms: Linux
    support: full
seealso:
  - module: hugeleaf.hugeleaf.apply
'''

EXAMPLES = r'''
- name: Check the huge pages of all services
  hugeleaf.hugeleaf.verify:
    since: 1h
'''

RETURN = r'''
findings:
  description: The findings as in C(hugeleaf verify --json), each with its severity and the command that helps.
  returned: always
  type: list
  elements: dict
services:
  description: The services with the pages that they asked for and got.
  returned: always
  type: list
  elements: dict
pools:
  description: The pools, in pages.
  returned: always
  type: list
  elements: dict
'''

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hugeleaf.hugeleaf.plugins.module_utils.program import Program, arguments_of


def main():
    module = AnsibleModule(
        argument_spec=arguments_of({'since': {'type': 'str'}}),
        supports_check_mode=True,
    )
    program = Program(module)
    since = module.params['since']
    answer = program.ask(['verify'] + ([] if since is None else ['--since=' + since]))
    parts = {name: answer.values.get(name) or [] for name in ('findings', 'services', 'pools')}
    if not answer.values.get('good'):
        serious = [one for one in parts['findings'] if one.get('severity') != 'note']
        lines = ['%s: %s%s' % (one.get('id'), one.get('text'),
                               ' Next: ' + one['command'] if one.get('command') else '') for one in serious]
        module.fail_json(msg='; '.join(lines) or 'hugeleaf verify ended with status %s' % answer.status, **parts)
    module.exit_json(changed=False, **parts)


if __name__ == '__main__':
    main()

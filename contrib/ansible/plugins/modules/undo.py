#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright (c) the hugeleaf developers
# SPDX-License-Identifier: MIT OR Apache-2.0

from __future__ import annotations

DOCUMENTATION = r'''
module: undo
short_description: Revert applied plans of huge pages
version_added: 0.1.0
description:
  - Runs C(hugeleaf undo) for each apply of a plan file that is in force, newest first. It restores the state that each
    apply has journaled.
  - A place that something else has changed meanwhile is left alone, with a warning.
  - In check mode it runs C(hugeleaf undo --dry-run), which changes nothing.
  - Does nothing if no such apply is in force.
author: The hugeleaf developers (@hugeleaf)
options:
  plan:
    description: The plan file whose applies are reverted.
    type: path
    default: /etc/hugeleaf/plan.toml
  all:
    description: Revert the applies of every plan file.
    type: bool
    default: false
  even_if_changed:
    description: Also restore places that something else has changed meanwhile.
    type: bool
    default: false
  program:
    description: The program, as a path or as a name in C(PATH), C(/usr/local/bin) or C(/usr/bin).
    type: str
    default: hugeleaf
attributes:
  check_mode:
    description: Returns the changes that it would make.
    support: full
  diff_mode:
    description: Returns the state before and after each changed step.
    support: full
  platform:
    description: Needs Linux, and root.
    platforms: Linux
    support: full
seealso:
  - module: hugeleaf.hugeleaf.apply
'''

EXAMPLES = r'''
- name: Return the host to the state before the plan
  hugeleaf.hugeleaf.undo:
    plan: /etc/hugeleaf/plan.toml

- name: Revert every plan
  hugeleaf.hugeleaf.undo:
    all: true
'''

RETURN = r'''
undone:
  description: The numbers of the applies that were reverted, or would be.
  returned: always
  type: list
  elements: int
steps:
  description: The steps as in C(hugeleaf undo --json).
  returned: always
  type: list
  elements: dict
restart:
  description: Services that see a change of this run only after a restart, as units or names.
  returned: always
  type: list
  elements: str
'''

import os

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hugeleaf.hugeleaf.plugins.module_utils.program import (
    Program,
    arguments_of,
    result_of,
)

# States of a step that undo leaves as it is, and reports.
LEFT = ('changed-since', 'busy', 'in-use', 'short', 'failed', 'not-reached')


def in_force(program):
    """Returns the applies in force, newest first."""
    applies = program.ask(['undo', '--list']).values.get('applies') or []
    return [one for one in applies if one.get('state') != 'undone']


def main():
    module = AnsibleModule(
        argument_spec=arguments_of({
            'plan': {'type': 'path', 'default': '/etc/hugeleaf/plan.toml'},
            'all': {'type': 'bool', 'default': False},
            'even_if_changed': {'type': 'bool', 'default': False},
        }),
        supports_check_mode=True,
    )
    program = Program(module)
    # The journal has absolute paths.
    plan = os.path.abspath(module.params['plan'])
    flags = ['--even-if-changed'] if module.params['even_if_changed'] else []
    undone = []

    def remaining(applies):
        return [one for one in applies
                if (module.params['all'] or one.get('plan') == plan) and one['id'] not in undone]

    def run(which):
        answer = program.ask(['undo'] + flags + which)
        applies = answer.values.get('applies') or []
        undone.extend(one['id'] for one in applies)
        if not module.check_mode and not all(one.get('finished') for one in applies):
            left = '; '.join(sentences(answer.steps)) or 'see steps'
            program.fail(answer, '%s is undone only in part: %s. Next: end the processes that use it, then repeat'
                                 % (plan, left), undone=undone)
        program.earlier.extend(answer.steps)

    if module.check_mode:
        # A single dry run for all of them accounts for the state that each undo leaves for the next.
        every = in_force(program)
        ours = remaining(every)
        if len(ours) == len(every):
            if ours:
                run(['--dry-run', '--all'])
        else:
            for one in ours:
                if one['id'] not in undone:
                    run(['--dry-run', str(one['id'])])
    else:
        while True:
            # The undo of an apply that continues an earlier one reverts both, so the list is read again.
            ours = remaining(in_force(program))
            if not ours:
                break
            run([str(ours[0]['id'])])

    for sentence in sentences(program.earlier):
        module.warn(sentence)
    module.exit_json(undone=undone, **result_of(program.earlier))


def sentences(steps):
    found = []
    for step in steps:
        if step.get('state') in LEFT:
            note = step.get('note')
            found.append('apply %s: %s: %s%s' % (step.get('apply'), step.get('path'), step['state'],
                                                 ': ' + note if note else ''))
    return found


if __name__ == '__main__':
    main()

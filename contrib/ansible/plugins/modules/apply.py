#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright (c) the hugeleaf developers
# SPDX-License-Identifier: MIT OR Apache-2.0

from __future__ import annotations

DOCUMENTATION = r'''
module: apply
short_description: Apply a plan of huge pages
version_added: 0.1.0
description:
  - Runs C(hugeleaf apply). It reserves pools, changes settings and writes files as the plan says, and journals each
    step first, so that M(hugeleaf.hugeleaf.undo) reverts it exactly.
  - In check mode it runs C(hugeleaf apply --dry-run), which checks every step and changes nothing.
  - RV(ignore:changed) is true if a step changed the host or if the plan file was replaced.
author: The hugeleaf developers (@hugeleaf)
options:
  plan:
    description: The plan file. Nobody but root may be able to change it or a directory above it.
    type: path
    default: /etc/hugeleaf/plan.toml
  content:
    description:
      - The content of the plan file. Its directory must exist.
      - The file is only replaced by a plan that the host accepts. The plan is tried by C(--dry-run) first.
      - Without O(content), the plan file must exist.
    type: str
  drop_caches:
    description: If a pool is short, drop clean page cache between tries. Servers must read it again.
    type: bool
    default: false
  all_or_nothing:
    description: If a pool stays short, revert everything instead of keeping the pages obtained.
    type: bool
    default: false
  allow_shrink:
    description:
      - Accept a plan that takes pages away from a pool. Something else may have reserved them.
      - A plan that M(hugeleaf.hugeleaf.plan) has made keeps them.
    type: bool
    default: false
  allow_short:
    description: Accept pools with fewer pages than planned with a warning, instead of failing.
    type: bool
    default: false
  program:
    description: The program, as a path or as a name in C(PATH), C(/usr/local/bin) or C(/usr/bin).
    type: str
    default: hugeleaf
attributes:
  check_mode:
    description: Checks all steps and returns the changes that it would make.
    support: full
  diff_mode:
    description: Returns the state before and after each changed step.
    support: full
  platform:
    description: Needs Linux, and root.
    platforms: Linux
    support: full
seealso:
  - module: hugeleaf.hugeleaf.plan
  - module: hugeleaf.hugeleaf.undo
'''

EXAMPLES = r'''
- name: Apply a plan that a template describes
  hugeleaf.hugeleaf.apply:
    content: "{{ lookup('ansible.builtin.template', 'plan.toml.j2') }}"

- name: Apply the plan file of this host
  hugeleaf.hugeleaf.apply:
    plan: /etc/hugeleaf/plan.toml
    all_or_nothing: true
'''

RETURN = r'''
id:
  description: The number of this apply for C(hugeleaf undo). Missing if it changed nothing, and in check mode.
  returned: success
  type: int
steps:
  description: The steps as in C(hugeleaf apply --json).
  returned: always
  type: list
  elements: dict
restart:
  description: Services that see a change of this run only after a restart, as units or names.
  returned: always
  type: list
  elements: str
to_do:
  description: Remaining steps for you.
  returned: success
  type: list
  elements: str
'''

import os

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hugeleaf.hugeleaf.plugins.module_utils.program import (
    Program,
    arguments_of,
    draft_path,
    read_plan,
    result_of,
    shortages,
)


def unwritten(module, path, error):
    reason = getattr(error, 'strerror', None) or error
    module.fail_json(msg='%s cannot be written: %s; nothing was changed. Next: make room on its file system, and make it '
                         'writable: df %s' % (path, reason, os.path.dirname(path)))


def write(module, path, content):
    try:
        with open(path, 'w', encoding='utf-8') as file:
            file.write(content)
    except OSError as error:
        unwritten(module, path, error)


def replace(module, draft, plan):
    if not os.path.isdir(os.path.dirname(plan)):
        module.fail_json(msg='%s: its directory does not exist. Next: create it, owned by root' % plan)
    try:
        module.atomic_move(draft, plan)
    except Exception as error:  # pylint: disable=broad-except
        # ansible-core raises Exception, with the OSError as its cause.
        unwritten(module, plan, error.__cause__ or error)
    module.set_mode_if_different(plan, 0o644, False)


def preview(program, path, plan):
    """Lets the program check all steps. Ends the module if one is impossible, or takes pages that others may need."""
    answer = program.ask(['apply', '--dry-run', path], accepted=(0,), names={path: plan})
    for step in answer.steps:
        before, after = step.get('before'), step.get('after')
        shrinks = step.get('what') == 'pool' and isinstance(before, int) and isinstance(after, int) and after < before
        if shrinks and not program.module.params['allow_shrink']:
            program.fail(answer, '%s would shrink from %s to %s pages, and something else may have reserved them; nothing '
                                 'was changed. Next: add these pages to the plan, or set allow_shrink'
                         % (step['path'], before, after))
    return answer


def main():
    module = AnsibleModule(
        argument_spec=arguments_of({
            'plan': {'type': 'path', 'default': '/etc/hugeleaf/plan.toml'},
            'content': {'type': 'str'},
            'drop_caches': {'type': 'bool', 'default': False},
            'all_or_nothing': {'type': 'bool', 'default': False},
            'allow_shrink': {'type': 'bool', 'default': False},
            'allow_short': {'type': 'bool', 'default': False},
        }),
        supports_check_mode=True,
    )
    program = Program(module)
    # The journal has absolute paths.
    plan, content = os.path.abspath(module.params['plan']), module.params['content']
    old = read_plan(module, plan)
    if content is None and old is None:
        module.fail_json(msg='%s does not exist. Next: make it with hugeleaf plan --output %s, or set content'
                             % (plan, plan))
    replaced = content is not None and content != old
    if replaced:
        with draft_path(module) as draft:
            write(module, draft, content)
            answer = preview(program, draft, plan)
            if not module.check_mode:
                replace(module, draft, plan)
                program.has_changed = True
    else:
        answer = preview(program, plan, plan)
    if not module.check_mode:
        flags = [flag for flag in ('drop_caches', 'all_or_nothing') if module.params[flag]]
        flags = ['--' + flag.replace('_', '-') for flag in flags]
        answer = program.ask(['apply'] + flags + [plan])

    result = result_of(answer.steps)
    if replaced:
        result['changed'] = True
        result['diff'].insert(0, {'before_header': plan, 'after_header': plan, 'before': old or '', 'after': content})
    for warning in answer.values.get('warnings') or []:
        module.warn(warning)
    if answer.status == 1:
        short = '; '.join(shortages(answer.steps)) or 'see steps'
        message = '%s was not applied as planned: %s. Next: hugeleaf apply --dry-run %s; docs/guide/apply.md has the ' \
                  'remedies for each shortage' % (plan, short, plan)
        if not module.params['allow_short'] or answer.values.get('undone'):
            program.fail(answer, message, **result)
        module.warn(message)
    if answer.values.get('id') is not None:
        result['id'] = answer.values['id']
    module.exit_json(to_do=answer.values.get('to_do') or [], **result)


if __name__ == '__main__':
    main()
